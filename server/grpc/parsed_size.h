// Computes the memory that a message will take after parsing, before it is allocated: two bytes on
// the wire can become a hundred.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

namespace runnel {

// An upper bound on the memory that `bytes` take when they are parsed as a message of the type of
// `prototype`: its fields, nested messages, and unknown fields, with each container at the largest
// size to which it grows. If the bytes cannot be parsed, they are counted up to the error. Counting
// ends beyond `most`.
int64_t parsed_size(const grpc::ByteBuffer& bytes, const google::protobuf::Message& prototype,
                    int64_t most);

}  // namespace runnel
