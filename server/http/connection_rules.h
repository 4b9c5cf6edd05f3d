// Decides when an HTTP connection reads, writes and ends, without its socket, its parser or a
// clock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "server/http/http_server.h"

namespace runnel {

// The maximum number of bytes of one read from a connection.
inline constexpr size_t kHttpReadBytes = 4096;

// How many connections of one thread may linger.
int lingering_share(const HttpLimits& limits);

// A connection reports each event and its time, and does the next action that the rules return. It
// reads even while it answers, so that it notices a reset. A client that has closed its socket and
// a client that only stops sending look the same until something is sent to them: see probe().
class ConnectionRules {
 public:
  enum class Phase {
    kIdle,       // no byte of the next request has arrived
    kReading,    // some of its bytes have arrived
    kAnswering,  // until the last byte of the answer is being sent
    kHangingUp,  // everything has been sent: reads until the client closes
    kClosed,
  };
  enum class Next {
    kWait,       // for the next event
    kRead,       // as soon as there are bytes
    kWatch,      // read nothing, and look for a reset in a second
    kParse,      // parse the bytes that have arrived
    kPass,       // pass them to the handler, if it takes the body in pieces
    kContinue,   // send "100 Continue"
    kHeartbeat,  // send the heartbeat
    kWrite,      // some of the bytes to send
    kFinish,     // finish the answer: begin the next request, or hang_up()
    kLinger,     // send no more, and read until the client closes
    kRefuseCut,  // refuse the request, because the client has closed before its end
    kRefuseLate,
    kClose,
  };

  explicit ConnectionRules(const HttpLimits& limits) : limits_(limits) {}

  Phase phase() const { return phase_; }
  bool client_ended() const { return client_ended_; }
  // When deadline_passed() is due; TimePoint::max(): never.
  TimePoint deadline() const { return deadline_; }
  Next deadline_passed(TimePoint now);
  // False if the connection is already closed.
  bool close();

  // Whether to read, if `pending` bytes have arrived that are not parsed.
  Next read(size_t pending);
  // Bytes have arrived. `end`: they are the last ones, but the client may still read.
  Next came(bool end);
  // A second of kWatch has passed. False: there is nothing to watch for.
  bool watched(size_t pending);
  // The client has ended its side. Sends an interim answer, which clients of HTTP/1.1 skip (RFC
  // 9110, 15.2). If the client's socket is closed, its system replies with a reset. A stream's
  // chunks have the same effect.
  Next probe() const;

  void next_request(TimePoint now);
  void begin_request(TimePoint now);
  // All bytes so far are parsed, and the request is not complete.
  Next needs_more() const;
  // The client waits for "100 Continue" before it sends the body.
  void expect_continue() { answer_.client_waits = true; }
  // The handler wants the body.
  Next want_body();
  // The request, or the part that its handler begins with, is complete.
  void end_request(TimePoint now);

  // The answer has a heartbeat.
  void set_heartbeat() { answer_.has_heartbeat = true; }
  bool takes_answer() const { return phase_ == Phase::kAnswering && !answer_.complete; }
  // Bytes are to be sent that do not belong to the handler's answer.
  Next send(int64_t bytes, TimePoint now);
  // A part of the answer is to be sent. `last`: it completes the answer.
  Next answer(int64_t bytes, bool last, TimePoint now);
  // The whole answer to a request that may be incomplete is to be sent.
  Next refuse(int64_t bytes, TimePoint now);
  // The system has taken bytes.
  Next written(int64_t bytes, TimePoint now);
  // No request follows. `in_pieces`: a large part of the body may not have arrived yet.
  Next hang_up(bool in_pieces, TimePoint now);

 private:
  bool is_watched(size_t pending) const;
  Next write(TimePoint now);

  struct Answer {
    bool has_heartbeat = false;
    bool client_waits = false;  // to send the body
    bool begun = false;         // a part of it is to be sent, or was sent
    bool complete = false;      // likewise its last part
    TimePoint done_by = TimePoint::max();
  };

  const HttpLimits& limits_;
  Phase phase_ = Phase::kIdle;
  TimePoint deadline_ = TimePoint::max();
  bool reading_ = false;
  bool watching_ = false;
  bool client_ended_ = false;
  bool writing_ = false;
  int64_t unsent_ = 0;  // bytes
  Answer answer_;       // to the current request
};

}  // namespace runnel
