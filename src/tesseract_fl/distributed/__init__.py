"""One round over several processes or machines: each holds a block of columns, only n or n × n numbers cross."""
