-- tokens rise over all shards, so that of another one proves nothing
CREATE SEQUENCE lease_tokens;
SELECT setval('lease_tokens', (SELECT coalesce(max(token), 0) + 1 FROM leases), false);

-- one row: which configuration the store is at, and how many it has seen
CREATE TABLE generation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL,
    name text NOT NULL,
    since bigint
);
INSERT INTO generation (epoch, name) VALUES (0, '');
