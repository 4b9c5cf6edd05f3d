// The settings of a server. They are read from a JSON file, and flags override them. Every setting
// is documented in docs/configuration.md; config/serve.json is an example.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/status.h"

namespace runnel {

// A bundle to serve.
struct ModelConfig {
  std::string name;                       // empty: the name in the bundle's config.json
  std::string path;                       // of the bundle's directory
  std::vector<std::string> aliases = {};  // other names of the model for clients
  std::string chat_template = {};  // path of a template that replaces the model's; empty: none
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

struct ServerConfig {
  // Sets every setting to its default, with no models.
  ServerConfig();

  std::vector<ModelConfig> models;
  std::string address;
  std::string metrics_address;  // for metrics and probes over HTTP; empty: none
  std::string http_address;     // for OpenAI's API over HTTP; empty: none
  std::string http_hosts;       // allowed host names besides those of loopback; comma-separated
  std::string http_origins;     // allowed origins of pages besides the server's; comma-separated
  int64_t queue_time_ms = 0;    // how long calls over gRPC wait for a state by default
  int64_t http_queue_time_ms = 30000;  // the same for calls over HTTP
  std::string keys;                    // path of the file of keys; empty: no key is needed
  bool insecure_public = false;        // listens beyond this machine without keys, or without TLS
  std::string tls_cert, tls_key, tls_client_ca;  // paths; empty: none
  std::string stored_states;           // path of the directory of stored states; empty: none
  std::string seal_keys;               // paths of the keys of state files, with commas; empty: none
  std::string storage_url;             // parse_store_url(); empty: sessions end with the process
  std::string storage_sync;            // of a directory: "none", "interval", "each"
  std::string storage_password_file;   // a file with the password of Redis; empty: no password
  std::string storage_ca;              // a file of authorities for rediss://; empty: the system's
  std::string storage_cert;            // a file with the server's certificate for rediss://
  std::string storage_key;             // a file with its private key
  int64_t storage_ttl_ms = 604800000;  // after which an unused session is removed from the store
  int64_t storage_lease_ms = 5000;     // after which other servers may take a call's session
  int64_t storage_timeout_ms = 1000;   // that a call waits for the store
  int64_t storage_log_bytes = 65536;   // of a session's log; 0: writes the state after each call
  int64_t storage_answer_bytes = 65536;  // kept of a session's last call, for a retry; 0: none
  std::string rewind;                    // "W,N", as parse_rewind() reads it; empty: none
  std::string backend;                   // "auto", "cpu", "cuda"
  std::string isa;        // "auto", "portable", "avx2", "avx512", "avx512bf16", "amx"
  int64_t threads = 0;    // of the CPU backend; 0: one per core
  std::string precision;  // "auto", "fp32", "bf16", "int8", "blocks"
  int64_t context = 0;    // positions of models with attention; 0: the default
  std::string cache;      // of such models: "auto", "fp32", "bf16"
  std::string kernels;    // of the CUDA backend: "own", "cublas"
  std::string gpu_state;  // of the CUDA backend: "plain", "replay"
  std::string prompts;    // of the CUDA backend: "steps", "chunks"
  std::string network;    // of the CUDA backend: "whole", "operations"
  std::string log_level;  // "debug", "info", "warn", "error"
  bool log_json = false;
  bool log_access = true;
  std::vector<int64_t> limits;  // in the order of all_limits()
  // A message for each setting that was given by its old name: "--states is called --stored-states
  // now".
  std::vector<std::string> old_names;

  // The value set for `limit`, which must be one of all_limits().
  int64_t limit(const Limit& limit) const;

  friend bool operator==(const ServerConfig&, const ServerConfig&) = default;
};

inline constexpr int64_t kMaxModels = 64;
inline constexpr int64_t kMaxAliases = 16;  // of a model
inline constexpr int64_t kMaxConfigFileBytes = 1 << 20;

// Sets the settings that are in the JSON `text`, and does not change the others. INVALID_ARGUMENT
// names `file`, the key's path, what was expected and what was found. A relative path starts at the
// file's own directory.
Status parse_config(std::string_view text, const std::string& file, ServerConfig& config);

// True for a name that a model or a caller may have: 1 to kMaxNameLength characters of A-Z a-z 0-9
// . _ : -
bool is_plain_name(std::string_view name);
// The rule of is_plain_name() in words.
std::string plain_name_text();

// Reads a file with parse_config(). NOT_FOUND when it cannot be read.
Status read_config_file(const std::string& path, ServerConfig& config);

// "DIRECTORY" or "NAME=DIRECTORY", as on the command line.
Result<ModelConfig> parse_model(std::string_view text);

// Gives a model a chat template. `text` is "NAME=FILE", as on the command line. A model that was
// given without a name is named by the last part of its directory. INVALID_ARGUMENT if `text` has
// another form, or there is no model of that name.
Status set_chat_template(std::string_view text, std::vector<ModelConfig>& models);

// How far sessions can go back.
struct RewindConfig {
  int64_t values = 0;  // how many positions a session can go back; 0: none
  int64_t every = 0;   // values between two snapshots
};

// Parses "W,N" or "". INVALID_ARGUMENT says what was expected.
Result<RewindConfig> parse_rewind(std::string_view text);

// Checks the rules that concern several settings, after the file and the flags are read.
// INVALID_ARGUMENT says what to do.
Status check_config(const ServerConfig& config);

}  // namespace runnel
