-- whoever holds the lease of this shard reads the feed
ALTER TABLE feeds ADD COLUMN shard INTEGER NOT NULL DEFAULT 0;

-- one row: which configuration the store is at, and how many it has seen
CREATE TABLE generation (
    epoch INTEGER NOT NULL,
    name TEXT NOT NULL,
    since INTEGER
);
INSERT INTO generation (epoch, name) VALUES (0, '');
