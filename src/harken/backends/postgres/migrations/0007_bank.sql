-- the last events of each outcome per trigger, see backends/last_event_ids_by_outcome.py
CREATE TABLE banks (
    trigger text NOT NULL,
    list text NOT NULL,
    ids bytea NOT NULL,
    PRIMARY KEY (trigger, list)
);

-- in how many of these lists an event is: it stays while it is in one
CREATE TABLE kept (
    event bigint PRIMARY KEY,
    lists integer NOT NULL
);

-- one row: the last event that was looked at, and how many a list has (0: there are none)
CREATE TABLE banked (
    event bigint NOT NULL,
    keep integer NOT NULL
);
INSERT INTO banked VALUES (0, 0);
