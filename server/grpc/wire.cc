#include "server/grpc/wire.h"

#include <string_view>
#include <vector>

#include "server/grpc/parsed_size.h"
#include "server/trace_context.h"

namespace runnel {
namespace {

// A packed number of a byte on the wire takes 8 in an array that doubles.
constexpr int64_t kParsedPerByte = 12;
constexpr int64_t kParsedAnyway = 64 << 10;
// Values and log-probabilities as the engine has them, as messages and encoded: 4 bytes each.
constexpr int64_t kHeldPerByte = 16;

// What the client's metadata says under `key`; valid as long as the context.
std::vector<std::string_view> values_of(const char* key,
                                        const grpc::CallbackServerContext& context) {
  const auto [first, last] = context.client_metadata().equal_range(key);
  std::vector<std::string_view> values;
  for (auto it = first; it != last; ++it) values.emplace_back(it->second.data(), it->second.size());
  return values;
}

}  // namespace

int64_t length_of(const grpc::ByteBuffer& bytes) {
  return bytes.Valid() ? static_cast<int64_t>(bytes.Length()) : 0;
}

Status check_parsed_size(const grpc::ByteBuffer& bytes,
                         const google::protobuf::Message& prototype) {
  const int64_t length = length_of(bytes);
  const int64_t most = kParsedAnyway + kParsedPerByte * length;
  const int64_t size = parsed_size(bytes, prototype, most);
  if (size <= most) return {};
  return invalid_argument("the request has too many small fields: its " + std::to_string(length) +
                          " bytes would take more than " + std::to_string(most) + " in memory" +
                          "; send fewer, or numbers packed");
}

int64_t memory_for(const grpc::ByteBuffer& bytes) {
  return kParsedAnyway + kHeldPerByte * length_of(bytes);
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), status.message()};
}

void add_pushback(const Status& status, grpc::CallbackServerContext& context) {
  if (!status.retry_after()) return;
  context.AddTrailingMetadata("grpc-retry-pushback-ms",
                              std::to_string(status.retry_after()->count()));
}

CallOrigin origin_of(const char* rpc, const ServerState& state,
                     const grpc::CallbackServerContext& context) {
  const auto authorization = values_of("authorization", context);
  const auto traceparent = values_of("traceparent", context);
  return {.rpc = rpc,
          .peer = context.peer(),
          .caller = state.callers.identify(authorization, context.peer()),
          .trace_id = traceparent.size() == 1 ? trace_id_of(traceparent[0]) : ""};
}

}  // namespace runnel
