// The plain-text template of RWKV-7 G1, which is published without one.
#pragma once

namespace runnel {

// "User: ...\n\nAssistant:", as its author describes it. Blank lines in system and user text are
// closed up, so that nobody's text begins a turn. enable_thinking true opens "<think"; false closes
// it empty.
inline constexpr const char* kRwkv7G1Template = R"({%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{{- 'Assistant: ' + m.content.split('</think>')[-1]|trim + '\n\n' -}}
{%- else -%}
{{- ('System: ' if m.role in ['system', 'developer'] else 'User: ')
    + m.content.replace('\r\n', '\n').split('\n')|select|join('\n')|trim + '\n\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- 'Assistant:' -}}
{%- if enable_thinking is true -%}{{- ' <think' -}}{%- endif -%}
{%- if enable_thinking is false -%}{{- ' <think>\n</think' -}}{%- endif -%}
{%- endif -%}
)";

}  // namespace runnel
