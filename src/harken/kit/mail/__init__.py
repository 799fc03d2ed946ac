"""What services that read mailboxes share: texts, senders, what is extracted, and what a job may ask."""

from harken.kit.mail.letter import Letter, Part, fields_of
from harken.kit.mail.query import FIELDS, MailQuery, condition, delivery

__all__ = ["FIELDS", "Letter", "MailQuery", "Part", "condition", "delivery", "fields_of"]
