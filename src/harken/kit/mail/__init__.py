"""For services that read mailboxes: the fields of a mail event, its sender, and the query of a job."""

from harken.kit.mail.mailbox_query_settings import FIELDS, MailQuery, condition, delivery
from harken.kit.mail.message_parts import MailMessage, Part, mail_fields

__all__ = ["FIELDS", "MailMessage", "MailQuery", "Part", "condition", "delivery", "mail_fields"]
