#include "config/field.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace runnel {
namespace {

constexpr size_t kMaxTextLength = 4096;
constexpr int64_t kMostQueueTimeMs = 3600000;

Field text_field(const char* key, const char* flag, std::string* (*at)(ServerConfig&),
                 const char* what) {
  Field field;
  field.key = key;
  field.flag = flag;
  field.kind = FieldKind::kText;
  field.what = what;
  field.text = at;
  return field;
}

Field optional_text_field(const char* key, const char* flag, std::string* (*at)(ServerConfig&),
                          const char* what) {
  Field field = text_field(key, flag, at, what);
  field.may_be_empty = true;
  return field;
}

// The path of a file; empty if none is given.
Field file_field(const char* key, const char* flag, std::string* (*at)(ServerConfig&),
                 const char* what) {
  Field field = optional_text_field(key, flag, at, what);
  field.kind = FieldKind::kFile;
  return field;
}

Field choice_field(const char* key, const char* flag, std::string* (*at)(ServerConfig&),
                   std::vector<std::string> choices, const char* what) {
  Field field = text_field(key, flag, at, what);
  field.kind = FieldKind::kChoice;
  field.choices = std::move(choices);
  return field;
}

Field gpu_field(const char* key, const char* flag, std::string* (*at)(ServerConfig&),
                std::vector<std::string> choices, const char* what) {
  Field field = choice_field(key, flag, at, std::move(choices), what);
  field.for_gpu = true;
  return field;
}

Field integer_field(const char* key, const char* flag, int64_t* (*at)(ServerConfig&, size_t),
                    int64_t max, const char* what) {
  Field field;
  field.key = key;
  field.flag = flag;
  field.kind = FieldKind::kInteger;
  field.what = what;
  field.max = max;
  field.integer = at;
  return field;
}

Field threads_field() {
  return integer_field(
      "threads", "--threads", [](ServerConfig& config, size_t) { return &config.threads; }, 256,
      "threads that all models on the CPU share; 0: one per core that the process may use");
}

Field switch_field(const char* key, const char* flag, bool* (*on)(ServerConfig&),
                   const char* what) {
  Field field;
  field.key = key;
  field.flag = flag;
  field.kind = FieldKind::kSwitch;
  field.what = what;
  field.on = on;
  return field;
}

Field limit_field(const Limit& limit, size_t index) {
  Field field;
  field.key = std::string("limits.") + limit.name;
  field.flag = std::string("--") + limit.name;
  std::replace(field.flag.begin(), field.flag.end(), '_', '-');
  field.kind = FieldKind::kInteger;
  field.what = limit.what;
  field.min = limit.min;
  field.max = limit.max;
  field.integer = [](ServerConfig& config, size_t at) { return &config.limits[at]; };
  field.index = index;
  return field;
}

void add_http_fields(std::vector<Field>& fields) {
  fields.push_back(optional_text_field(
      "metrics_address", "--metrics-address",
      [](ServerConfig& config) { return &config.metrics_address; },
      "host:port for metrics and health over HTTP: /metrics, /healthz, /readyz"));
  fields.push_back(optional_text_field(
      "http_address", "--http-address", [](ServerConfig& config) { return &config.http_address; },
      "host:port for OpenAI's API over HTTP (/v1/chat/completions, /v1/responses, "
      "/v1/images/generations and others), sessions and the page"));
  fields.push_back(optional_text_field(
      "http_hosts", "--http-hosts", [](ServerConfig& config) { return &config.http_hosts; },
      "host names by which clients reach http_address, in addition to localhost, separated by "
      "commas"));
  fields.push_back(optional_text_field(
      "http_origins", "--http-origins", [](ServerConfig& config) { return &config.http_origins; },
      "origins of web pages that may call http_address, such as https://app.example.org, "
      "separated by commas"));
}

void add_queue_fields(std::vector<Field>& fields) {
  fields.push_back(integer_field(
      "queue_time_ms", "--queue-time-ms",
      [](ServerConfig& config, size_t) { return &config.queue_time_ms; }, kMostQueueTimeMs,
      "milliseconds that a call by gRPC waits for a state if it does not say how long"));
  fields.push_back(integer_field(
      "http_queue_time_ms", "--http-queue-time-ms",
      [](ServerConfig& config, size_t) { return &config.http_queue_time_ms; }, kMostQueueTimeMs,
      "milliseconds that a call by http_address waits for a state if it does not say how long"));
}

void add_log_fields(std::vector<Field>& fields) {
  fields.push_back(choice_field(
      "log.level", "--log-level", [](ServerConfig& config) { return &config.log_level; },
      {"debug", "info", "warn", "error"}, "the least severe level that is logged"));
  fields.push_back(switch_field(
      "log.json", "--log-json", [](ServerConfig& config) { return &config.log_json; },
      "log one JSON object a line instead of text"));
  fields.push_back(switch_field(
      "log.access", "--log-access", [](ServerConfig& config) { return &config.log_access; },
      "log a line for each call that has ended"));
}

// A time in milliseconds.
Field storage_time(const char* key, const char* flag, int64_t* (*at)(ServerConfig&, size_t),
                   int64_t min, int64_t max, const char* what) {
  Field field = integer_field(key, flag, at, max, what);
  field.min = min;
  return field;
}

void add_storage_fields(std::vector<Field>& fields) {
  fields.push_back(optional_text_field(
      "storage.url", "--storage", [](ServerConfig& config) { return &config.storage_url; },
      "store that keeps sessions after the server has ended: dir:PATH for a directory; "
      "redis://HOST:PORT/DATABASE, rediss:// with TLS or unix:PATH for Redis; several servers "
      "may share it"));
  fields.push_back(choice_field(
      "storage.sync", "--storage-sync", [](ServerConfig& config) { return &config.storage_sync; },
      {"none", "interval", "each"},
      "for a directory: how soon the state after a call is on the disk; none: when the system "
      "writes it; interval: within about a second; each: before the call ends"));
  fields.push_back(file_field(
      "storage.password_file", "--storage-password-file",
      [](ServerConfig& config) { return &config.storage_password_file; },
      "file whose first line is the password of Redis"));
  fields.push_back(file_field(
      "storage.ca", "--storage-ca", [](ServerConfig& config) { return &config.storage_ca; },
      "PEM file of the certificate authorities that may sign the certificate of a rediss:// "
      "server; without it, the authorities of the system"));
  fields.push_back(file_field(
      "storage.cert", "--storage-cert", [](ServerConfig& config) { return &config.storage_cert; },
      "PEM file of the certificate that this server shows to a rediss:// server, which may ask for "
      "one"));
  fields.push_back(file_field(
      "storage.key", "--storage-key", [](ServerConfig& config) { return &config.storage_key; },
      "PEM file of the private key of --storage-cert"));
  fields.push_back(storage_time(
      "storage.ttl_ms", "--storage-ttl-ms",
      [](ServerConfig& config, size_t) { return &config.storage_ttl_ms; }, 1000, int64_t{1} << 40,
      "milliseconds after which a session that no call has changed is removed from the store"));
  fields.push_back(storage_time(
      "storage.lease_ms", "--storage-lease-ms",
      [](ServerConfig& config, size_t) { return &config.storage_lease_ms; }, 3000, 600000,
      "milliseconds that a server's lease on the session of a running call lasts after each "
      "renewal; until the lease ends, no other server may take the session"));
  fields.push_back(storage_time(
      "storage.timeout_ms", "--storage-timeout-ms",
      [](ServerConfig& config, size_t) { return &config.storage_timeout_ms; }, 100, 60000,
      "milliseconds that a call waits for the store; for a call with a state, the time begins "
      "again with each piece of a state that the store saves or loads"));
  fields.push_back(integer_field(
      "storage.log_bytes", "--storage-log-bytes",
      [](ServerConfig& config, size_t) { return &config.storage_log_bytes; }, 1 << 20,
      "bytes of a session's log: while it has room, a call that can be replayed is saved as an "
      "entry of the log, without the state; 0: no log"));
  fields.push_back(integer_field(
      "storage.answer_bytes", "--storage-answer-bytes",
      [](ServerConfig& config, size_t) { return &config.storage_answer_bytes; }, 1 << 20,
      "bytes that the store keeps of a session's last call, so that every server answers a retry; "
      "0: none"));
}

Field precision_field() {
  return choice_field(
      "precision", "--precision", [](ServerConfig& config) { return &config.precision; },
      {"auto", "fp32", "bf16", "int8", "blocks"},
      "number format of weights and of the inputs that they multiply; int8: weights in 8 bits, on "
      "a CPU; blocks: weights as a quantized GGUF file has them; auto: blocks for such a file on a "
      "CPU, else bf16 if the device has bf16 instructions, else fp32");
}

// Sets the names that the field had in the previous release.
void was_called(Field& field, const char* key, const char* flag) {
  field.old_key = key;
  field.old_flag = flag;
}

void add_device_fields(std::vector<Field>& fields) {
  fields.push_back(choice_field(
      "backend", "--backend", [](ServerConfig& config) { return &config.backend; },
      {"auto", "cpu", "cuda"}, "where the models run"));
  fields.push_back(choice_field(
      "isa", "--isa", [](ServerConfig& config) { return &config.isa; },
      {"auto", "portable", "avx2", "avx512", "avx512bf16", "amx"},
      "instruction set of the CPU backend; auto: the fastest one on this processor"));
  fields.push_back(threads_field());
  fields.push_back(precision_field());
  fields.push_back(integer_field(
      "context", "--context", [](ServerConfig& config, size_t) { return &config.context; },
      kMaxContext,
      "maximum number of positions of a session, for models with attention; 0: the model's own, "
      "at most 4096"));
  fields.push_back(choice_field(
      "cache", "--cache", [](ServerConfig& config) { return &config.cache; },
      {"auto", "fp32", "bf16"},
      "number format of the keys and values of attention; auto: bf16, or fp32 with precision "
      "fp32"));
  fields.push_back(gpu_field(
      "kernels", "--kernels", [](ServerConfig& config) { return &config.kernels; },
      {"own", "cublas"},
      "on a GPU: the kernels that compute matrix products; own: runnel's; cublas: those of "
      "NVIDIA's cuBLASLt"));
  fields.push_back(gpu_field(
      "gpu_state", "--gpu-state", [](ServerConfig& config) { return &config.gpu_state; },
      {"plain", "replay"},
      "on a GPU: how often states are written back; plain: at each step; replay: once in several "
      "steps, with a log of the inputs since the last write"));
  was_called(fields.back(), "state", "--state");
  fields.push_back(gpu_field(
      "prompts", "--prompts", [](ServerConfig& config) { return &config.prompts; },
      {"steps", "chunks"},
      "on a GPU: how prompts are read: position by position, or in chunks on tensor cores"));
  fields.push_back(gpu_field(
      "network", "--network", [](ServerConfig& config) { return &config.network; },
      {"whole", "operations"},
      "on a GPU: one kernel for the whole network where it fits, or a kernel for each operation"));
}

std::vector<Field> make_fields() {
  std::vector<Field> fields;
  fields.push_back(text_field(
      "address", "--address", [](ServerConfig& config) { return &config.address; },
      "host:port to listen on; port 0 lets the system choose one"));
  add_http_fields(fields);
  add_queue_fields(fields);
  fields.push_back(file_field(
      "keys", "--keys", [](ServerConfig& config) { return &config.keys; },
      "file of keys (runnel key); every caller must send one of them; read again when it "
      "changes"));
  fields.push_back(switch_field(
      "insecure_public", "--insecure-public",
      [](ServerConfig& config) { return &config.insecure_public; },
      "allow an address that other machines can reach, even if calls need no key, or send their "
      "keys without TLS"));
  fields.push_back(file_field(
      "tls.cert", "--tls-cert", [](ServerConfig& config) { return &config.tls_cert; },
      "PEM file of the server's certificate and its chain; the gRPC port (address) then accepts "
      "only TLS; http_address and metrics_address stay without TLS"));
  fields.push_back(file_field(
      "tls.key", "--tls-key", [](ServerConfig& config) { return &config.tls_key; },
      "PEM file of that certificate's private key"));
  fields.push_back(file_field(
      "tls.client_ca", "--tls-client-ca",
      [](ServerConfig& config) { return &config.tls_client_ca; },
      "PEM file of certificate authorities; with it, a client must have a certificate that "
      "one of them has signed"));
  fields.push_back(file_field(
      "stored_states", "--stored-states",
      [](ServerConfig& config) { return &config.stored_states; },
      "directory of state files NAME.state that sequences may start from, by name"));
  fields.back().kind = FieldKind::kDirectory;
  was_called(fields.back(), "states", "--states");
  fields.push_back(file_field(
      "seal_keys", "--seal-keys", [](ServerConfig& config) { return &config.seal_keys; },
      "files with one seal key each, separated by commas; the server seals state files with the "
      "first key, and refuses a state file that is sealed with none of the keys"));
  fields.back().kind = FieldKind::kFiles;
  was_called(fields.back(), "seal_key", "--seal-key");
  add_storage_fields(fields);
  fields.push_back(optional_text_field(
      "rewind", "--rewind", [](ServerConfig& config) { return &config.rewind; },
      "W,N: sessions can go back to any of their last W positions; the server keeps a snapshot "
      "every N values"));
  add_device_fields(fields);
  add_log_fields(fields);
  size_t index = 0;
  for (const Limit* limit : all_limits()) fields.push_back(limit_field(*limit, index++));
  return fields;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

Status prefixed(const std::string& name, const Status& status) {
  return status.ok() ? status : invalid_argument(name + " " + status.message());
}

Status set_switch(const Field& field, std::string_view word, ServerConfig& config) {
  if (word != "true" && word != "false") {
    return invalid_argument("is " + quote(word) + "; it must be true or false");
  }
  *field.on(config) = word == "true";
  return {};
}

}  // namespace

std::span<const Field> setting_fields() {
  static const std::vector<Field> kFields = make_fields();
  return kFields;
}

Status set_integer(const Field& field, int64_t value, ServerConfig& config) {
  if (value < field.min || value > field.max) {
    return invalid_argument("is " + std::to_string(value) + "; it must be between " +
                            std::to_string(field.min) + " and " + std::to_string(field.max));
  }
  *field.integer(config, field.index) = value;
  return {};
}

Status set_text(const Field& field, const std::string& value, ServerConfig& config) {
  const bool chosen = field.kind != FieldKind::kChoice ||
                      std::ranges::find(field.choices, value) != field.choices.end();
  if (!chosen) {
    return invalid_argument("is " + quote(value) + "; it must be " + listed(field.choices));
  }
  if (value.empty() && !field.may_be_empty) {
    return invalid_argument("is empty; it must have at least one character");
  }
  if (value.size() > kMaxTextLength) {
    return invalid_argument("has " + std::to_string(value.size()) +
                            " characters; it may have at most " + std::to_string(kMaxTextLength));
  }
  *field.text(config) = value;
  return {};
}

Status set_from_flag(const Field& field, std::string_view word, ServerConfig& config) {
  if (field.kind == FieldKind::kSwitch) {
    return prefixed(field.flag, set_switch(field, word, config));
  }
  if (field.kind != FieldKind::kInteger) {
    return prefixed(field.flag, set_text(field, std::string(word), config));
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    return invalid_argument(field.flag + " is " + quote(word) +
                            "; it must be a whole number between " + std::to_string(field.min) +
                            " and " + std::to_string(field.max));
  }
  return prefixed(field.flag, set_integer(field, value, config));
}

std::string value_text(const Field& field, const ServerConfig& config) {
  ServerConfig copy = config;
  switch (field.kind) {
    case FieldKind::kInteger:
      return std::to_string(*field.integer(copy, field.index));
    case FieldKind::kSwitch:
      return *field.on(copy) ? "true" : "false";
    case FieldKind::kText:
    case FieldKind::kFile:
    case FieldKind::kFiles:
    case FieldKind::kDirectory:
    case FieldKind::kChoice:
      return *field.text(copy);
  }
  return "";
}

std::vector<std::string> changed_fields(const ServerConfig& a, const ServerConfig& b) {
  std::vector<std::string> keys;
  for (const Field& field : setting_fields()) {
    if (value_text(field, a) != value_text(field, b)) keys.push_back(field.key);
  }
  return keys;
}

std::string range_text(const Field& field) {
  switch (field.kind) {
    case FieldKind::kInteger:
      return std::to_string(field.min) + " to " + std::to_string(field.max);
    case FieldKind::kSwitch:
      return "true or false";
    case FieldKind::kChoice:
      return listed(field.choices);
    case FieldKind::kText:
      return "text";
    case FieldKind::kFile:
      return "a file";
    case FieldKind::kFiles:
      return "files";
    case FieldKind::kDirectory:
      return "a directory";
  }
  return "";
}

std::string default_text(const Field& field) {
  const std::string value = value_text(field, ServerConfig());
  return value.empty() ? "none" : value;
}

std::string table_row(const Field& field) {
  return "| `" + field.key + "` | `" + field.flag + "` | " + default_text(field) + " | " +
         range_text(field) + " | " + field.what + " |";
}

}  // namespace runnel
