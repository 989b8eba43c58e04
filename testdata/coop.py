"""A Coop owner, or an outsider, in Python's standard library alone.

    coop.py owner|outsider|forger STORE

Reads one JSON string of SQL a line and answers one JSON object a line. Beside
SQL, an owner knows "fence TABLE" and "close and SQL".
"""
import fcntl, json, os, sqlite3, sys


class Owner:
    """Holds the lock file and lends its connection the permit."""

    def __init__(self, store):
        store = os.path.realpath(store)
        self.lock = os.open(store + ".engine.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError("Another Coop writer owns this store")
        self.running = True
        self.connection = sqlite3.connect(store, timeout=10, isolation_level=None)
        self.connection.create_function("coop_write_permit", 0, lambda: int(self.running))
        self.connection.create_function("coop_context", 1, lambda key: None)

    def fence(self, table):
        for op in ("insert", "update", "delete"):
            self.connection.execute(
                f"CREATE TRIGGER IF NOT EXISTS coop_fence_{table}_{op} BEFORE {op.upper()} ON {table} BEGIN"
                " SELECT CASE WHEN coop_write_permit() != 1 THEN RAISE(ABORT,'Coop writer fenced') END; END")

    def run(self, statement):
        if statement.startswith("fence "):
            return self.fence(statement.removeprefix("fence "))
        if statement.startswith("close and "):
            self.running = False
            statement = statement.removeprefix("close and ")
        return self.connection.execute(statement).fetchall()


class Outsider:
    """A script that knows nothing of owners."""

    def __init__(self, store):
        self.connection = sqlite3.connect(store, timeout=10, isolation_level=None)

    def run(self, statement):
        if statement.count(";"):
            return self.connection.executescript(statement).fetchall()
        return self.connection.execute(statement).fetchall()


class Forger(Outsider):
    """A script whose author has read of the permit, and of nothing else."""

    def __init__(self, store):
        super().__init__(store)
        self.connection.create_function("coop_write_permit", 0, lambda: 1)


def answer(**what):
    print(json.dumps(what), flush=True)


def attempt(action):
    try:
        result = action()
    except (sqlite3.Error, RuntimeError, OSError) as problem:
        answer(err=str(problem))
        return None
    rows = result if isinstance(result, list) else []
    answer(values=[str(value) for row in rows for value in row])
    return result


def main():
    role, store = sys.argv[1:]
    side = attempt(lambda: {"owner": Owner, "outsider": Outsider, "forger": Forger}[role](store))
    if side is None:
        return
    for line in sys.stdin:
        attempt(lambda: side.run(json.loads(line)))


main()
