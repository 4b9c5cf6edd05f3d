// Converts bytes of the wire to messages and back, and our Status to gRPC's.
//
// The services get bytes and parse them here. If gRPC parsed them, it would answer a message that
// does not parse with UNIMPLEMENTED, or in the middle of a stream treat it as the stream's end.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "server/calls/call_report.h"

namespace runnel {

// The number of bytes on the wire, without their framing. 0 if there is no message.
int64_t length_of(const grpc::ByteBuffer& bytes);

// OK if the message in `bytes` takes memory in proportion to its size on the wire. Otherwise it is
// refused, before memory is allocated.
Status check_parsed_size(const grpc::ByteBuffer& bytes, const google::protobuf::Message& prototype);

// The maximum memory for a message in bytes, from parsing `bytes` to encoding the answer to its
// values.
int64_t memory_for(const grpc::ByteBuffer& bytes);

// The message in `bytes`, or INVALID_ARGUMENT.
template <typename Message>
Result<Message> parse_message(const grpc::ByteBuffer& bytes) {
  if (Status s = check_parsed_size(bytes, Message::default_instance()); !s.ok()) return s;
  grpc::ByteBuffer copy = bytes;  // a copy of the reference, because reading consumes it
  Message message;
  if (copy.Valid() && grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return message;
  }
  return invalid_argument("the request is not a " + std::string(Message().GetTypeName()) +
                          ": its " + std::to_string(bytes.Valid() ? bytes.Length() : 0) +
                          " bytes do not parse; expected protobuf as defined in proto/");
}

template <typename Message>
grpc::ByteBuffer serialize_message(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  const grpc::Status status =
      grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  check(status.ok(), "a message of our own serializes");
  return bytes;
}

// A message that has only `data`, in its bytes field with the number `field`. The data is not
// copied.
grpc::ByteBuffer bytes_message(int field, std::string data);

// The data of a message that has the form of bytes_message(), without a copy. Empty if there is no
// data, or if the message has another form, which parse_message() can read.
std::vector<grpc::Slice> bytes_of_message(const grpc::ByteBuffer& bytes, int field);

// A status with the same code and message. If a field is at fault, the details name it in a
// v1::Fault.
grpc::Status to_grpc(const Status& status);

// If the status says when to try again, adds "grpc-retry-pushback-ms" to the trailing metadata. To
// be called before Finish.
void add_pushback(const Status& status, grpc::CallbackServerContext& context);

// The facts of a call of method `rpc` that are known before its messages.
CallStart call_start(const char* rpc, const ServerContext& state,
                     const grpc::CallbackServerContext& context);

}  // namespace runnel
