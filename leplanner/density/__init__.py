"""How probable an action block is under the data, given what was seen."""
