"""System checks: report wrong declarations and settings at start, not when a client calls."""
