-- one sequence for all shards, so that the token of one shard is never valid for another
CREATE SEQUENCE lease_tokens;
SELECT setval('lease_tokens', (SELECT coalesce(max(token), 0) + 1 FROM leases), false);

-- one row: the current generation of the configuration, and its number
CREATE TABLE generation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL,
    name text NOT NULL,
    since bigint
);
INSERT INTO generation (epoch, name) VALUES (0, '');
