// The base of all streaming reactors: a gRPC reactor that is the sink of one Call.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "base/within_memory.h"
#include "server/calls/session_header.h"
#include "server/grpc/wire.h"
#include "server/host/server_context.h"

namespace runnel {

// `Reactor` is gRPC's class for this kind of stream. `CallType` is the Call, whose make() takes a
// `Sink`. `Sink` is the interface that the call writes to. The reactor is made with new, and
// deletes itself when gRPC no longer uses it.
template <typename Reactor, typename CallType, typename Sink>
class StreamReactor : public Reactor, protected Sink {
 public:
  // `rpc` must have static storage. `state` must outlive the reactor. gRPC owns `context`.
  StreamReactor(const char* rpc, ServerContext& state, grpc::CallbackServerContext& context)
      : state_(state),
        context_(context),
        call_(CallType::make(state, call_start(rpc, state, context), *this)) {}

  void OnCancel() override { call_->cancel(); }
  void OnDone() override {
    call_->leave();
    delete this;
  }

 protected:
  // For a stream in which only the server writes. Takes its one request: counts its bytes, admits
  // the call, parses the request as a `Message`, and calls `begin(message)`, which starts the call.
  // If a step returns a status that is not OK, the call is refused with it.
  template <typename Message, typename Begin>
  void start_with(const grpc::ByteBuffer& bytes, const Begin& begin) {
    call_->enter();
    count_received(bytes);
    const Status status = within_memory([&]() -> Status {
      if (Status s = call_->admit(); !s.ok()) return s;
      const auto room =
          state_.memory.take(memory_for(bytes));  // until the call reserves its own memory
      if (!room.ok()) return room.status();
      const auto message = parse_message<Message>(bytes);
      return message.ok() ? begin(*message) : message.status();
    });
    if (!status.ok()) call_->refuse(status);
  }

  // The same, but a long message is read on a separate thread, because a few KB of text take a
  // millisecond, and gRPC's threads serve all calls. The reactor may no longer exist then, so
  // `begin` must keep everything that it needs.
  template <typename Message, typename Begin>
  void start_aside_with(const grpc::ByteBuffer& bytes, Begin begin) {
    call_->enter();
    count_received(bytes);
    const Status status = within_memory([&]() -> Status {
      if (Status s = call_->admit(); !s.ok()) return s;
      auto room = state_.memory.take(memory_for(bytes));
      if (!room.ok()) return room.status();
      const auto held = std::make_shared<MemoryBudget::Hold>(std::move(*room));
      read_aside(bytes, [bytes, begin = std::move(begin), held]() -> Status {
        const auto message = parse_message<Message>(bytes);
        return message.ok() ? begin(*message) : message.status();
      });
      return {};
    });
    if (!status.ok()) call_->refuse(status);
  }

  // Calls `read` at once, or on the thread for long messages if `bytes` is long. If its status is
  // not OK, the call is refused with it. If this function throws std::bad_alloc, `read` is not
  // called.
  template <typename Read>
  void read_aside(const grpc::ByteBuffer& bytes, Read read) {
    auto task = [call = call_, read = std::move(read)] {
      if (const Status s = within_memory(read); !s.ok()) call->refuse(s);
    };
    if (length_of(bytes) <= kReadAtOnce) return task();
    state_.reader.post(call_->caller().account, std::move(task));
  }

  // Names the call's session in the initial metadata. To be called before the first message is
  // sent.
  void name_session(const std::string& id) {
    if (!id.empty()) context_.AddInitialMetadata(kSessionHeader, id);
  }
  void count_received(const grpc::ByteBuffer& bytes) {
    state_.metrics.received.add(length_of(bytes));
  }
  void count_sent(const grpc::ByteBuffer& bytes) { state_.metrics.sent.add(length_of(bytes)); }

  // --- CallSink ---

  void finish(const Status& status) override {
    add_pushback(status, context_);
    this->Finish(to_grpc(status));
  }
  void cut_off() override { context_.TryCancel(); }

  ServerContext& state_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<CallType> call_;
};

}  // namespace runnel
