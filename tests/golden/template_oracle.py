"""Chat templates as `transformers` renders them: its environment of Jinja, written down here because
it lives inside a function there. Used by make_templates.py and template_diff.py; needs jinja2 3.1.
"""
import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 2, 2, 15, 4, 5)


class Generation(Extension):
    """{% generation %} marks what the model wrote; the text stays as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inner"), [], [], body).set_lineno(line)

    def _inner(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(source, variables):
    """(text, None) or (None, what Jinja says)."""
    try:
        return environment().from_string(source).render(**variables), None
    except Exception as error:  # whatever a template of a stranger does
        return None, f"{type(error).__name__}: {error}"
