"""The homes of the store. Only app.py names one."""
