"""Drawing from several sources: tasks, networks of all seeds side by side, and the policies compared."""
