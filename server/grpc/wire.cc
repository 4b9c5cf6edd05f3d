#include "server/grpc/wire.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runnel/v1/fault.pb.h"
#include "server/calls/trace_context.h"
#include "server/grpc/parsed_size.h"

namespace runnel {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// A packed number of one byte on the wire takes 8 bytes in an array that doubles.
constexpr int64_t kParsedPerByte = 12;
constexpr int64_t kParsedAnyway = 64 << 10;
// Values and log-probabilities in the engine's form, as messages, and encoded: 4 bytes each.
constexpr int64_t kHeldPerByte = 16;

// The prefix of a message with a single length-delimited field: its tag and its length.
using FieldHead = std::array<uint8_t, 16>;

uint32_t tag_of(int field) {
  constexpr uint32_t kLengthDelimited = 2;
  return (static_cast<uint32_t>(field) << 3) | kLengthDelimited;
}

// Removes `count` bytes from the front.
void drop_front(std::vector<grpc::Slice>& slices, size_t count) {
  while (count > 0) {
    const size_t here = std::min(count, slices[0].size());
    slices[0] = slices[0].sub(here, slices[0].size());
    if (slices[0].size() == 0) slices.erase(slices.begin());
    count -= here;
  }
}

// The values of `key` in the client's metadata. They are valid as long as the context.
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

grpc::ByteBuffer bytes_message(int field, std::string data) {
  FieldHead head{};
  uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(
      data.size(), CodedOutputStream::WriteVarint32ToArray(tag_of(field), head.data()));
  auto kept = std::make_unique<std::string>(std::move(data));
  const auto drop = [](void* held) { delete static_cast<std::string*>(held); };
  std::string& text = *kept;
  const std::array slices = {grpc::Slice(head.data(), static_cast<size_t>(end - head.data())),
                             grpc::Slice(text.data(), text.size(), drop, kept.release())};
  return {slices.data(), slices.size()};
}

std::vector<grpc::Slice> bytes_of_message(const grpc::ByteBuffer& bytes, int field) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Valid() || !bytes.Dump(&slices).ok()) return {};
  FieldHead found{};
  size_t known = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t more = std::min(found.size() - known, slice.size());
    std::copy_n(slice.begin(), more, found.begin() + known);
    known += more;
  }
  CodedInputStream head(found.data(), static_cast<int>(known));
  uint64_t count = 0;
  const bool is_field = head.ReadTag() == tag_of(field) && head.ReadVarint64(&count);
  const auto before = static_cast<size_t>(head.CurrentPosition());
  if (!is_field || count == 0 || count != bytes.Length() - before) return {};
  drop_front(slices, before);
  return slices;
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const bool has_places = status.raw_message() != status.message();
  if (status.field().empty() && !has_places) return {code, status.message()};
  v1::Fault fault;
  fault.set_field(std::string(status.field()));
  fault.set_message(status.raw_message());
  v1::StatusDetails details;
  details.set_code(code);
  details.set_message(status.message());
  details.add_details()->PackFrom(fault);
  return {code, status.message(), details.SerializeAsString()};
}

void add_pushback(const Status& status, grpc::CallbackServerContext& context) {
  if (!status.retry_after()) return;
  context.AddTrailingMetadata("grpc-retry-pushback-ms",
                              std::to_string(status.retry_after()->count()));
}

CallStart call_start(const char* rpc, const ServerContext& state,
                     const grpc::CallbackServerContext& context) {
  const auto authorization = values_of("authorization", context);
  const auto traceparent = values_of("traceparent", context);
  return {.rpc = rpc,
          .peer = context.peer(),
          .caller = state.callers.identify(authorization, context.peer()),
          .trace_id = traceparent.size() == 1 ? trace_id_of(traceparent[0]) : "",
          .came = state.clock.now()};
}

}  // namespace runnel
