"""For services that read mailboxes: the fields of a mail event, its sender, and the query of a job."""

from harken.kit.mail.message_parts import MailMessage, Part, mail_fields
from harken.kit.mail.query import FIELDS, MailQuery, condition, delivery

__all__ = ["FIELDS", "MailMessage", "MailQuery", "Part", "condition", "delivery", "mail_fields"]
