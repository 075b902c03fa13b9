// Chat templates for the tests: each in the manner of a family, with what templates do to strings
// (trim, split, replace, prefixes, slices, JSON, dates, alternation checks). Written for these tests.

export const CHATML = `{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

/** Trims, dates, BOS. */
export const HEADERS = `{{- bos_token }}
{%- set date = strftime_now('%d %b %Y') if strftime_now is defined else 'never' %}
{%- if messages[0].role == 'system' %}
  {%- set system = messages[0].content | trim %}
  {%- set rest = messages[1:] %}
{%- else %}
  {%- set system = '' %}
  {%- set rest = messages %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date + '\\n\\n' + system + '<|eot_id|>' }}
{%- for m in rest %}
  {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}`;

/** Finds the last real question from behind, takes reasoning out of answers, groups tool results. */
export const THINKING = `{%- set ns = namespace(last=messages|length - 1, found=false) %}
{%- for m in messages[::-1] %}
  {%- set index = (messages|length - 1) - loop.index0 %}
  {%- if not ns.found and m.role == 'user' and not (m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %}
    {%- set ns.found = true %}{%- set ns.last = index %}
  {%- endif %}
{%- endfor %}
{%- for m in messages %}
  {%- set content = m.content if m.content is string else '' %}
  {%- if m.role == 'assistant' %}
    {%- set reasoning = '' %}
    {%- if '</think>' in content %}
      {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last and reasoning %}
      {{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content }}
    {%- else %}
      {{- '<|im_start|>assistant\\n' + content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
  {%- elif m.role == 'tool' %}
    {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
    {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
  {%- else %}
    {{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}`;

/** The role inside the token's spelling; names; an empty system prompt is left out. */
export const BARS = `[gMASK]<sop>
{%- for m in messages %}
{%- if m.content %}<|{{ m.role }}|>
{%- if m.name is defined %}{{ ' ' ~ m.name }}{% endif %}
{{ m.content }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}`;

/** Refuses systems and turns out of order; escapes and re-cases. */
export const STRICT = `{% for m in messages -%}
{% if m.role == 'system' %}{{ raise_exception('This model takes no system turn: ' + m.content) }}{% endif %}
{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Turns must alternate') }}{% endif %}
{% macro turn(text, head) %}{{ '<|im_start|>' ~ head | upper ~ '\\n' ~ text ~ '<|im_end|>' }}{% endmacro %}
{{ turn(m.content.replace('<', '&lt;'), m.role) }}
{%- endfor %}`;

/** Everything as JSON, in a block that a loop filters. */
export const JSON_TURNS = `{%- for m in messages if m.role != 'tool' -%}
<|im_start|>{{ {'role': m.role, 'text': m.content, 'lower': m.content|lower} | tojson }}<|im_end|>
{%- endfor -%}
{{- '<|im_start|>' if add_generation_prompt else '' -}}`;
