"""Whether the account can sign in, and whether the folder and the search of a query work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harken.services.imap.api import Account, FolderState, ImapConnection, run_session
from harken.services.imap.query import Query, folder_name
from harken.source import Checked, Host

__all__ = ["check", "whoami"]


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """Sign in, and count the mails in the inbox."""
    folder: FolderState = await run_session(
        account, host.allow_private, lambda connection: connection.examine(folder_name("INBOX"))
    )
    return {"server": account.host, "user": account.username, "inbox": folder.count}


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Open the folder and search it; raises if either fails."""

    def look(connection: ImapConnection) -> int:
        folder = connection.examine(folder_name(query.folder))
        connection.search_after(folder.following, query.search)
        return folder.count

    count = await run_session(account, host.allow_private, look)
    return Checked(found={query.folder: f"a folder with {count:,} mails"})
