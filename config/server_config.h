// The settings of a server: read from a JSON file, overridden by flags. Every setting is documented
// in docs/configuration.md; config/serve.json is an example.
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
  std::string name;                       // empty: the one in the bundle's config.json
  std::string path;                       // of the bundle's directory
  std::vector<std::string> aliases = {};  // names by which clients find it, too
  std::string chat_template = {};         // path of a template in place of its own; empty: none
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

struct ServerConfig {
  // Every setting at its default; no models.
  ServerConfig();

  std::vector<ModelConfig> models;
  std::string address;
  std::string metrics_address;  // of metrics and probes, by HTTP; empty: none
  std::string http_address;     // of OpenAI's API, by HTTP; empty: none
  std::string http_hosts;       // names by which it is reached beside loopback's, with commas
  std::string http_origins;     // of pages that may ask it beside its own, with commas
  int64_t queue_time_ms = 0;    // how long calls by gRPC wait for a state where they do not say
  int64_t http_queue_time_ms = 30000;  // and calls by HTTP
  std::string keys;                    // path of the file of keys; empty: nobody is asked for one
  bool insecure_public = false;        // listens beyond this machine without keys, or without TLS
  std::string tls_cert, tls_key, tls_client_ca;  // paths; empty: none
  std::string stored_states;           // path of the directory of stored states; empty: none
  std::string seal_keys;               // paths of the keys of state files, with commas; empty: none
  std::string storage_url;             // parse_store_url(); empty: sessions end with the process
  std::string storage_sync;            // of a directory: "none", "interval", "each"
  std::string storage_password_file;   // of Redis; empty: it asks for none
  std::string storage_ca;              // of rediss://, a file; empty: the system's authorities
  int64_t storage_ttl_ms = 604800000;  // after which an unused session is removed from the store
  int64_t storage_lease_ms = 5000;     // of a call, after which another server may go ahead
  int64_t storage_timeout_ms = 1000;   // that a call waits for the store
  int64_t storage_log_bytes = 65536;   // of the log of a session; 0: a state after each call
  int64_t storage_answer_bytes = 65536;  // of a session's last call, for a retry; 0: none
  std::string rewind;                    // "W,N", as parse_rewind() reads it; empty: none
  std::string backend;                   // "auto", "cpu", "cuda"
  std::string isa;        // "auto", "portable", "avx2", "avx512", "avx512bf16", "amx"
  int64_t threads = 0;    // of the CPU backend; 0: one per core
  std::string precision;  // "auto", "fp32", "bf16", "int8", "blocks"
  int64_t context = 0;    // positions of models with attention; 0: the usual ones
  std::string cache;      // of such models: "auto", "fp32", "bf16"
  std::string kernels;    // of the CUDA backend: "own", "cublas"
  std::string gpu_state;  // likewise: "plain", "replay"
  std::string prompts;    // likewise: "steps", "chunks"
  std::string network;    // likewise: "whole", "operations"
  std::string log_level;  // "debug", "info", "warn", "error"
  bool log_json = false;
  bool log_access = true;
  std::vector<int64_t> limits;  // in the order of all_limits()
  // Where a setting was given by its old name: "--states is called --stored-states now".
  std::vector<std::string> old_names;

  // The value set for `limit`, which must be one of all_limits().
  int64_t limit(const Limit& limit) const;

  friend bool operator==(const ServerConfig&, const ServerConfig&) = default;
};

inline constexpr int64_t kMaxModels = 64;
inline constexpr int64_t kMaxAliases = 16;  // of a model
inline constexpr int64_t kMaxConfigFileBytes = 1 << 20;

// Sets what the JSON `text` says, and leaves the rest of `config` as it is. INVALID_ARGUMENT names
// `file`, the key's path, what was expected and what was found. Paths that are not absolute are
// taken from the file's own directory.
Status parse_config(std::string_view text, const std::string& file, ServerConfig& config);

// True for a name that a model or a caller may have: 1 to kMaxNameLength characters of A-Z a-z 0-9
// . _ : -
bool is_plain_name(std::string_view name);
// That rule in words.
std::string plain_name_text();

// Reads a file with parse_config(). NOT_FOUND when it cannot be read.
Status read_config_file(const std::string& path, ServerConfig& config);

// "DIRECTORY" or "NAME=DIRECTORY", as on the command line.
Result<ModelConfig> parse_model(std::string_view text);

// "NAME=FILE" as on the command line: gives the model of that name a chat template. A model that
// was given without a name is called by the last part of its directory. INVALID_ARGUMENT where
// `text` has another form, or no model that name.
Status set_chat_template(std::string_view text, std::vector<ModelConfig>& models);

// How far sessions can go back.
struct RewindConfig {
  int64_t values = 0;  // the last positions of each; 0: none
  int64_t every = 0;   // values between two snapshots
};

// "W,N", or nothing. INVALID_ARGUMENT says what was expected.
Result<RewindConfig> parse_rewind(std::string_view text);

// What must hold of all settings together, once file and flags are in: INVALID_ARGUMENT with what
// to do.
Status check_config(const ServerConfig& config);

}  // namespace runnel
