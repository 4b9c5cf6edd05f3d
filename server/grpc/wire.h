// Bytes of the wire to messages and back, and our Status to gRPC's.
//
// The services take bytes and parse them here, because gRPC answers a message that does not parse
// with UNIMPLEMENTED, and takes one in the middle of a stream for the stream's end.
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

// Bytes on the wire, without their framing; 0 where there is no message.
int64_t length_of(const grpc::ByteBuffer& bytes);

// OK where what `bytes` becomes in memory is in proportion to what it is on the wire; refused
// before memory is taken.
Status check_parsed_size(const grpc::ByteBuffer& bytes, const google::protobuf::Message& prototype);

// Bytes that a message may take in memory, from the parsing of `bytes` to the encoded answer to its
// values.
int64_t memory_for(const grpc::ByteBuffer& bytes);

// The message in `bytes`, or INVALID_ARGUMENT.
template <typename Message>
Result<Message> parse_message(const grpc::ByteBuffer& bytes) {
  if (Status s = check_parsed_size(bytes, Message::default_instance()); !s.ok()) return s;
  grpc::ByteBuffer copy = bytes;  // of the reference: reading consumes it
  Message message;
  if (copy.Valid() && grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) {
    return message;
  }
  return invalid_argument("the request is not a " + std::string(Message().GetTypeName()) +
                          ": its " + std::to_string(bytes.Valid() ? bytes.Length() : 0) +
                          " bytes do not parse; expected protobuf as defined in proto/runnel/v1");
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

// The message that has `data` in its field of bytes of that number, and nothing else. It keeps the
// data where it lies: no byte is copied.
grpc::ByteBuffer bytes_message(int field, std::string data);

// The bytes of a message that bytes_message() would make, where they lie; nothing where they are
// none, or the message has another form, which parse_message() reads.
std::vector<grpc::Slice> bytes_of_message(const grpc::ByteBuffer& bytes, int field);

// The same code and message; the field at fault, where there is one, as a v1::Fault in the
// details.
grpc::Status to_grpc(const Status& status);

// Tells a client when to try again: "grpc-retry-pushback-ms" in the trailing metadata, where the
// status has it. Before Finish.
void add_pushback(const Status& status, grpc::CallbackServerContext& context);

// What is known of a call of method `rpc` before its messages.
CallStart call_start(const char* rpc, const ServerContext& state,
                     const grpc::CallbackServerContext& context);

}  // namespace runnel
