#!/bin/sh
# table_page.sh LOWDOWN SCHEMA.md: the manual page dpe-table(5) on standard output; its tables are tbl's.
printf '%s\n' "'\\\" t"
{
    printf '# NAME\n\ndpe-table - what is in a DPE table\n\n'
    cat "$2"
} | "$1" -s -tman -M section=5 -M title=DPE-TABLE
