"""Amazon Web Services: queues (SQS), topics (SNS) and objects (S3), over HTTP, without Amazon's packages."""
