-- hashes of the names of what events are about, see backends/objects.py; 16 buckets of events make a part
CREATE TABLE objects (
    part bigint NOT NULL,
    hash integer NOT NULL,
    event bigint NOT NULL,
    PRIMARY KEY (part, hash, event)
);

-- one row: the first bucket whose events have no names here yet
CREATE TABLE indexed (
    bucket bigint NOT NULL
);
INSERT INTO indexed VALUES (0);
