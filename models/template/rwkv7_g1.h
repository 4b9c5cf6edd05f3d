// The plain-text template of RWKV-7 G1, which is published without one.
#pragma once

namespace runnel {

// "User: ...\n\nAssistant:", as the model's author describes it.
// - Empty lines in system and user text, and in the results of functions, are removed, because two
//   line breaks begin a turn. Lines that contain only spaces stay.
// - enable_thinking true opens "<think"; false writes an empty block of thinking.
// - Tools are listed in the system's text, and a call is JSON between fences.
inline constexpr const char* kRwkv7G1Template = R"({%- macro closed(text) -%}
{{- text.replace('\r\n', '\n').split('\n')|select|join('\n')|trim -}}
{%- endmacro -%}
{%- set begins = namespace(system=messages and messages[0].role in ['system', 'developer']) -%}
{%- if tools -%}
{{- 'System: ' -}}
{%- if begins.system -%}{{- closed(messages[0].content or '') + '\n' -}}{%- endif -%}
{{- 'Tools:\n[\n' -}}
{%- for t in tools -%}
{%- set f = t.function or t -%}
{{- '{"name": ' + f.name|tojson + ', "description": ' + (f.description or '')|tojson
    + ', "arguments": ' + ((f.parameters or {}).properties or {})|tojson + '}'
    + ('\n' if loop.last else ',\n') -}}
{%- endfor -%}
{{- ']\nReturn only a JSON function call.\n\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{- 'Assistant: ' + (m.content or '').split('</think>')[-1]|trim -}}
{%- for c in m.tool_calls or [] -%}
{%- set f = c.function or c -%}
{{- ('\n' if m.content or not loop.first else '') + '```json\n{"name": ' + f.name|tojson + ', "arguments": '
    + f.arguments|tojson + '}\n```' -}}
{%- endfor -%}
{{- '\n\n' -}}
{%- elif m.role == 'tool' -%}
{{- 'User: Function output:\n' + closed(m.content or '') + '\n\n' -}}
{%- elif not (tools and begins.system and loop.first) -%}
{{- ('System: ' if m.role in ['system', 'developer'] else 'User: ') + closed(m.content) + '\n\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'Assistant:' -}}
{%- if enable_thinking is true -%}{{- ' <think' -}}{%- endif -%}
{%- if enable_thinking is false -%}{{- ' <think>\n</think' -}}{%- endif -%}
{%- endif -%}
)";

}  // namespace runnel
