-- the last events of each outcome per trigger, see backends/last_event_ids_by_outcome.py
CREATE TABLE banks (
    trigger TEXT NOT NULL,
    list TEXT NOT NULL,
    ids BLOB NOT NULL,
    PRIMARY KEY (trigger, list)
) WITHOUT ROWID;

-- in how many of these lists an event is: it stays while it is in one
CREATE TABLE kept (
    event INTEGER PRIMARY KEY,
    lists INTEGER NOT NULL
);

-- one row: the last event that was looked at, and how many a list has (0: there are none)
CREATE TABLE banked (
    event INTEGER NOT NULL,
    keep INTEGER NOT NULL
);
INSERT INTO banked VALUES (0, 0);
