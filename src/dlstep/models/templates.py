"""Jinja chat templates for families whose tokenizers may lack one."""

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LLADA = (
    "{% for message in messages %}"
    "{% if loop.first %}<|startoftext|>{% endif %}"
    "<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n{{ message['content'] | trim }}<|eot_id|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

LLADA2 = (
    "{% if messages[0]['role'] == 'system' %}"
    "<role>SYSTEM</role>{{ messages[0]['content'] }}\ndetailed thinking off<|role_end|>"
    "{% else %}<role>SYSTEM</role>detailed thinking off<|role_end|>{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<role>HUMAN</role>{{ message['content'] }}<|role_end|>"
    "{% elif message['role'] == 'assistant' %}<role>ASSISTANT</role>{{ message['content'] }}<|role_end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}"
)
