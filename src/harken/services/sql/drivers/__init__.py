"""The databases that can be read: PostgreSQL, MySQL and MariaDB, SQLite."""
