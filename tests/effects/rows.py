"""Print the rows of a SQLite table as JSON lines: `rows.py DATABASE`."""

import json
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
cursor = database.execute("select number, total, paid from invoices")
names = [column[0] for column in cursor.description]
for row in cursor:
    print(json.dumps(dict(zip(names, row, strict=True))))
