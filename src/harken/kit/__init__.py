"""What authors of services share: JSON APIs, paging, changed lists, mail, messages, subprocesses."""
