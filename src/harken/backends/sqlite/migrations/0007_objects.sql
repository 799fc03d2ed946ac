-- hashes of the names of what events are about, see backends/objects.py; 16 buckets of events make a part
CREATE TABLE objects (
    part INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY (part, hash, event)
) WITHOUT ROWID;

-- one row: the first bucket whose events have no names here yet
CREATE TABLE indexed (
    bucket INTEGER NOT NULL
);
INSERT INTO indexed VALUES (0);
