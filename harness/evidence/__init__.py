"""Files of a run and the verdict on them: records, histories, ledger, observations, checkers. All pure."""
