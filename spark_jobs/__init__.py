"""Spark jobs that read topics and judge them: functions of a session, which never name a master."""
