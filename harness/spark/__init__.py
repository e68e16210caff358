"""Spark as a witness: sessions, jobs as processes of their own, and the verification built from them."""
