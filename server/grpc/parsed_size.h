// The memory that a message will take once it is parsed, computed before it is allocated: two bytes
// on the wire can become a hundred.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>

namespace runnel {

// Bytes, at most, that `bytes` take when they are parsed as a message like `prototype`: its fields,
// those of the messages in it, and fields that nobody knows, each container at the most that it
// grows to. Bytes that do not parse are counted up to where they stop making sense; beyond `most`
// counting ends.
int64_t parsed_size(const grpc::ByteBuffer& bytes, const google::protobuf::Message& prototype,
                    int64_t most);

}  // namespace runnel
