"""Tests that talk to real servers and stores on the loopback interface."""
