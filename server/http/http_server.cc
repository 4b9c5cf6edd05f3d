#include "server/http/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <utility>  // Asio 1.74 forgets it

// Clients can reach asserts of the parser: "0\r\n" as the first chunk, then one more byte.
#define BOOST_DISABLE_ASSERTS
#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <ctime>
#include <deque>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <sstream>

#include "base/check.h"

namespace runnel {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kReadBytes = 4096;
constexpr size_t kBuffersPerWrite = 16;
// How long a connection stays open after its last answer, reading: a close with unread bytes would
// reset it, and the client would lose the answer.
constexpr auto kLinger = std::chrono::seconds(2);
constexpr Duration kForever = Duration::max();
constexpr auto kWatch = std::chrono::seconds(1);  // from one look for a client's end to the next

// The parser throws for longer fields; a trailer may be longer than the headers by kReadBytes.
constexpr int64_t kMaxHeaderBytes = 32 << 10;
// A header of four bytes costs eighty.
constexpr int64_t kHeaderFactor = 24;
constexpr int64_t kConnectionBytes = 24 << 10;

using Headers = std::vector<std::pair<std::string, std::string>>;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

// Shuts the connection down unless an HttpConnection has taken it over. Closing is not enough: the
// listener has a descriptor of its own.
struct AcceptedSocket {
  explicit AcceptedSocket(int fd) : socket(fd) {}
  AcceptedSocket(AcceptedSocket&&) = default;
  AcceptedSocket& operator=(AcceptedSocket&&) = delete;
  ~AcceptedSocket() {
    if (socket.is_open()) shutdown(socket.get(), SHUT_RDWR);
  }

  Descriptor socket;
};

// The properties of a request that shape its answer.
struct AnswerForm {
  unsigned version = 11;
  bool head_only = false;
  bool keep_alive = false;
};

// Without a length the body comes in chunks; in HTTP/1.0 it ends with the connection.
std::string head_text(const AnswerForm& form, int status, std::string_view content_type,
                      std::optional<size_t> length, const Headers& headers = {}) {
  http::response<http::empty_body> head(static_cast<http::status>(status), form.version);
  head.set(http::field::date, http_date());
  head.set(http::field::content_type, beast::string_view(content_type.data(), content_type.size()));
  for (const auto& [name, value] : headers) head.set(name, value);
  if (length) {
    head.content_length(*length);
  } else {
    head.chunked(form.version == 11);
  }
  head.keep_alive(form.keep_alive);
  std::ostringstream text;
  text << head.base();
  return text.str();
}

// The text that stands for the star of `pattern` in `path`, or where both are the same, none; null
// where they do not fit.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return pattern == path ? std::optional<std::string_view>("") : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (path.size() <= before.size() + after.size()) return std::nullopt;
  if (!path.starts_with(before) || !path.ends_with(after)) return std::nullopt;
  path.remove_prefix(before.size());
  path.remove_suffix(after.size());
  return path.find('/') == std::string_view::npos ? std::optional(path) : std::nullopt;
}

// Tells an outcome once; at its end, kLost's.
template <auto kLost>
class Teller {
 public:
  using Outcome = decltype(kLost());

  Teller() = default;
  explicit Teller(std::function<void(Outcome)> tell) : tell_(std::move(tell)) {}
  Teller(Teller&& other) noexcept : tell_(std::exchange(other.tell_, nullptr)) {}
  Teller& operator=(Teller&& other) noexcept {
    std::swap(tell_, other.tell_);
    return *this;
  }
  ~Teller() {
    if (tell_) tell(kLost());
  }

  explicit operator bool() const { return tell_ != nullptr; }
  void tell(Outcome outcome) {
    if (const auto tell = std::exchange(tell_, nullptr)) tell(std::move(outcome));
  }

 private:
  std::function<void(Outcome)> tell_;
};

bool not_taken() { return false; }
HttpPiece no_piece() { return Status(Code::kCancelled, "it has gone"); }

using Taken = Teller<not_taken>;     // whether the system has taken a piece of an answer
using BodyTaker = Teller<no_piece>;  // the next piece of a body

// Bytes on their way out.
struct Piece {
  std::string bytes;
  Taken taken = {};
  std::shared_ptr<const void> kept = nullptr;  // until they have gone
};

HttpRefusal body_too_long(const HttpLimits& limits) {
  return {413, "the body has more than " + std::to_string(limits.body_bytes) + " bytes; send less"};
}

// The answer to what the parser refuses.
HttpRefusal fault(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit) return body_too_long(limits);
  if (error == http::error::bad_version) {
    return {505, "the request line must end with HTTP/1.0 or HTTP/1.1"};
  }
  return {400, "the request is not HTTP/1.1: " + error.message()};
}

}  // namespace

// A connection stays on one thread. It reads even while it answers, so that it notices when the
// client goes; requests that come meanwhile wait in `pending_`.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpWorker& worker, AcceptedSocket accepted, const HttpLimits& limits,
                 const std::vector<HttpRoute>& routes, std::atomic<int64_t>& bodies,
                 const OnHttpRefusal& on_refusal);

  void start();
  void close();

  // Sends `pieces` of the current answer, which waiting() counts already.
  void deliver(std::vector<Piece> pieces, bool last);
  // What the current answer sends where nothing else goes out.
  void set_heartbeat(std::string bytes) { heartbeat_ = std::move(bytes); }
  void on_gone(std::function<void()> gone) { on_gone_ = std::move(gone); }
  // Gives the next piece of the current request's body, as soon as there is one.
  void read_body(BodyTaker take);

  // Runs a task of this connection; bad_alloc closes it.
  template <typename Task>
  void run(Task task) {
    if (phase_ == Phase::kClosed) return;
    try {
      task();
    } catch (const std::bad_alloc&) {
      close();
    }
  }

 private:
  enum class Phase {
    kIdle,       // nothing of the next request is there
    kReading,    // some of it is
    kAnswering,  // until the answer's last byte is on its way
    kHangingUp,  // all is sent: waits for the client to close
    kClosed,
  };
  using Parser = http::request_parser<http::string_body>;
  using PieceParser = http::request_parser<http::buffer_body>;

  // A completion handler, which keeps the connection.
  template <typename Method>
  auto bound(Method method) {
    return [self = shared_from_this(), method](error_code error, size_t bytes = 0) {
      self->run([&] { ((*self).*method)(error, bytes); });
    };
  }

  void read();
  void on_readable(error_code error, size_t);
  void watch();
  void on_watch(error_code error, size_t);
  void parse();
  bool parse_some();
  void next_request();
  bool count_body();
  void forget_body();
  void refuse_bad_head();
  const HttpRoute* find_route();
  bool bound_body();
  void let_continue();
  void handle();
  void pass_piece();
  void refuse(HttpRefusal refusal, const Headers& headers = {});
  void enqueue(std::string bytes);
  void complete();
  void write();
  void on_write(error_code error, size_t bytes);
  void answered();
  // More of the client's next requests has come than is read meanwhile.
  bool is_full() const { return phase_ == Phase::kAnswering && pending_.size() >= kReadBytes; }
  void set_deadline(Duration from_now);
  void on_deadline(error_code error, size_t);
  void tell_gone();

  HttpWorker& worker_;
  const HttpLimits& limits_;
  const std::vector<HttpRoute>& routes_;
  std::atomic<int64_t>& bodies_;  // bytes of bodies that are being read, on all connections
  const OnHttpRefusal& on_refusal_;
  asio::generic::stream_protocol::socket socket_;
  asio::steady_timer timer_;  // the deadline of the phase
  asio::steady_timer watch_;  // looks for the client's end where nothing is read
  Phase phase_ = Phase::kIdle;
  std::string peer_;

  bool reading_ = false;
  bool watching_ = false;
  bool client_ended_ = false;  // sends no more
  std::string pending_;        // what was read and not parsed

  std::optional<Parser> parser_;  // of the request that is being read
  size_t head_bytes_ = 0;         // of it, parsed
  int64_t body_bytes_ = 0;        // of it, counted in bodies_
  const HttpRoute* route_ = nullptr;
  AnswerForm form_;
  std::function<void()> on_gone_;
  std::unique_ptr<PieceParser> pieces_;  // of a body that is taken in pieces
  BodyTaker take_;                       // where the next piece goes

  std::string heartbeat_;
  std::deque<Piece> outgoing_;
  size_t written_ = 0;  // of the first
  bool writing_ = false;
  bool waits_to_continue_ = false;        // the client, with the body
  bool complete_ = false;                 // `outgoing_` has the end of the answer
  TimePoint done_by_ = TimePoint::max();  // where it is complete
  const std::shared_ptr<std::atomic<int64_t>> waiting_ = std::make_shared<std::atomic<int64_t>>(0);
};

// One thread's event loop and connections.
class HttpWorker : public std::enable_shared_from_this<HttpWorker> {
 public:
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> stays{context.get_executor()};
  std::set<std::shared_ptr<HttpConnection>> connections;
  // What is being read, and a piece of a body; a connection keeps none of it.
  std::array<char, kReadBytes> incoming{}, piece{};
};

// Formats an answer and hands it to the connection, which may be gone.
class HttpReply::Exchange {
 public:
  Exchange(std::weak_ptr<HttpWorker> worker, std::weak_ptr<HttpConnection> connection,
           AnswerForm form, std::shared_ptr<std::atomic<int64_t>> waiting)
      : worker_(std::move(worker)),
        connection_(std::move(connection)),
        form_(form),
        waiting_(std::move(waiting)) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  ~Exchange() {
    if (phase_ == Phase::kEnded) return;
    try {
      if (phase_ == Phase::kNew) {
        send(http_error(500, "the server has no answer"), nullptr);
      } else {
        abort();
      }
    } catch (const std::bad_alloc&) {  // then the client has to end it
    }
  }

  void set_header(std::string name, std::string value) {
    expect(Phase::kNew);
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void send(HttpAnswer answer, std::shared_ptr<const void> kept) {
    expect(Phase::kNew);
    std::vector<Piece> pieces =
        one(head_text(form_, answer.status, answer.content_type, answer.body.size(), headers_));
    if (!form_.head_only) pieces.push_back({.bytes = std::move(answer.body)});
    pieces.back().kept = std::move(kept);
    deliver(std::move(pieces), Phase::kEnded);
  }

  void begin(int status, std::string_view content_type, std::string_view heartbeat) {
    expect(Phase::kNew);
    if (!heartbeat.empty() && !form_.head_only) {
      to_connection([text = chunk_of(heartbeat)](HttpConnection& connection) mutable {
        connection.set_heartbeat(std::move(text));
      });
    }
    deliver(one(head_text(form_, status, content_type, std::nullopt, headers_)), Phase::kBegun);
  }

  void write(std::string_view chunk, std::function<void(bool)> taken) {
    expect(Phase::kBegun);
    // An empty chunk would be the last.
    std::vector<Piece> pieces = one(form_.head_only || chunk.empty() ? "" : chunk_of(chunk));
    pieces.front().taken = Taken(std::move(taken));
    try {
      deliver(std::move(pieces), Phase::kBegun);
    } catch (const std::bad_alloc&) {  // the piece has told
    }
  }

  void end() {
    expect(Phase::kBegun);
    const bool chunked = form_.version == 11 && !form_.head_only;
    deliver(one(chunked ? beast::buffers_to_string(http::make_chunk_last()) : ""), Phase::kEnded);
  }

  void read(std::function<void(HttpPiece)> take) {
    to_connection([taker = BodyTaker(std::move(take))](HttpConnection& connection) mutable {
      connection.read_body(std::move(taker));
    });
  }

  void abort() {
    to_connection([](HttpConnection& connection) { connection.close(); });
  }

  int64_t waiting() const { return waiting_->load(); }

  void on_gone(std::function<void()> gone) {
    if (const auto connection = connection_.lock()) connection->on_gone(std::move(gone));
  }

 private:
  enum class Phase { kNew, kBegun, kEnded };

  void expect(Phase phase) const {
    check(phase_ == phase, "an answer is sent whole, or begun, written and ended");
  }

  static std::vector<Piece> one(std::string bytes) {
    std::vector<Piece> pieces(1);
    pieces.front().bytes = std::move(bytes);
    return pieces;
  }

  std::string chunk_of(std::string_view text) const {
    if (form_.version < 11) return std::string(text);
    return beast::buffers_to_string(http::make_chunk(asio::const_buffer(text.data(), text.size())));
  }

  void deliver(std::vector<Piece> pieces, Phase next) {
    for (const Piece& piece : pieces) waiting_->fetch_add(std::ssize(piece.bytes));
    // Before it is posted: whoever hears then that a chunk was taken may write on at once.
    const Phase before = phase_.exchange(next);
    try {
      to_connection([pieces = std::move(pieces),
                     last = next == Phase::kEnded](HttpConnection& connection) mutable {
        connection.deliver(std::move(pieces), last);
      });
    } catch (const std::bad_alloc&) {
      if (before != next) phase_ = before;
      throw;
    }
  }

  template <typename Task>
  void to_connection(Task task) {
    const std::shared_ptr<HttpWorker> worker = worker_.lock();
    if (worker == nullptr) return;
    asio::post(worker->context, [to = connection_, task = std::move(task)]() mutable {
      if (const auto connection = to.lock()) connection->run([&] { task(*connection); });
    });
  }

  const std::weak_ptr<HttpWorker> worker_;
  const std::weak_ptr<HttpConnection> connection_;
  const AnswerForm form_;
  Headers headers_;
  std::atomic<Phase> phase_ = Phase::kNew;
  const std::shared_ptr<std::atomic<int64_t>> waiting_;
};

void HttpReply::set_header(std::string name, std::string value) {
  exchange_->set_header(std::move(name), std::move(value));
}
void HttpReply::send(HttpAnswer answer, std::shared_ptr<const void> kept) {
  exchange_->send(std::move(answer), std::move(kept));
}
void HttpReply::begin(int status, std::string_view type, std::string_view heartbeat) {
  exchange_->begin(status, type, heartbeat);
}
void HttpReply::write(std::string_view chunk, std::function<void(bool)> taken) {
  const std::shared_ptr<Exchange> held = exchange_;  // `taken` may drop this reply
  held->write(chunk, std::move(taken));
}
void HttpReply::end() { exchange_->end(); }
void HttpReply::read(std::function<void(HttpPiece)> take) {
  const std::shared_ptr<Exchange> held = exchange_;  // `take` may drop this reply
  held->read(std::move(take));
}
void HttpReply::abort() { exchange_->abort(); }
int64_t HttpReply::waiting() const { return exchange_->waiting(); }
void HttpReply::on_gone(std::function<void()> gone) { exchange_->on_gone(std::move(gone)); }

HttpConnection::HttpConnection(HttpWorker& worker, AcceptedSocket accepted,
                               const HttpLimits& limits, const std::vector<HttpRoute>& routes,
                               std::atomic<int64_t>& bodies, const OnHttpRefusal& on_refusal)
    : worker_(worker),
      limits_(limits),
      routes_(routes),
      bodies_(bodies),
      on_refusal_(on_refusal),
      socket_(worker.context),
      timer_(worker.context),
      watch_(worker.context) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  getpeername(accepted.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size);
  peer_ = network_of(peer);
  error_code error;
  socket_.assign({peer.ss_family, 0}, accepted.socket.get(), error);
  if (!error) accepted.socket.release();
  if (!error) socket_.non_blocking(true, error);
}

void HttpConnection::start() {
  worker_.connections.insert(shared_from_this());
  next_request();
  read();
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  timer_.cancel();
  watch_.cancel();
  error_code ignored;
  // Seen by the listener as well, which has a descriptor of its own.
  socket_.shutdown(asio::socket_base::shutdown_both, ignored);
  socket_.close(ignored);
  worker_.connections.erase(self);
  forget_body();
  outgoing_.clear();
  take_ = {};
  tell_gone();
}

void HttpConnection::read() {
  if (reading_ || client_ended_ || phase_ == Phase::kClosed) return;
  if (is_full()) return watch();
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read, bound(&HttpConnection::on_readable));
}

void HttpConnection::on_readable(error_code error, size_t) {
  reading_ = false;
  if (error) return close();
  const size_t bytes = socket_.read_some(asio::buffer(worker_.incoming), error);
  if (error == asio::error::would_block) return read();
  if (error && error != asio::error::eof) return close();
  client_ended_ = error == asio::error::eof;
  if (phase_ == Phase::kHangingUp) return client_ended_ ? close() : read();
  pending_.append(worker_.incoming.data(), bytes);
  if (phase_ == Phase::kAnswering) {
    pass_piece();
    if (client_ended_) tell_gone();
  } else {
    parse();
  }
  read();
}

// Without reading: what the client has sent stands before its end.
void HttpConnection::watch() {
  if (watching_) return;
  watching_ = true;
  watch_.expires_after(kWatch);
  watch_.async_wait(bound(&HttpConnection::on_watch));
}

void HttpConnection::on_watch(error_code error, size_t) {
  watching_ = false;
  if (error || !is_full()) return;
  pollfd file = {socket_.native_handle(), POLLRDHUP, 0};
  if (poll(&file, 1, 0) > 0) return tell_gone();
  watch();
}

void HttpConnection::next_request() {
  parser_.emplace();
  forget_body();
  parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes));
  parser_->body_limit(std::numeric_limits<uint64_t>::max());  // until bound_body()
  head_bytes_ = 0;
  route_ = nullptr;
  form_ = {};
  heartbeat_.clear();
  complete_ = false;
  done_by_ = TimePoint::max();
  phase_ = Phase::kIdle;
  set_deadline(limits_.idle_timeout);
}

// Parses `pending_` up to the end of one request.
void HttpConnection::parse() {
  if (phase_ == Phase::kIdle && !pending_.empty()) {
    phase_ = Phase::kReading;
    set_deadline(limits_.read_timeout);
  }
  while (!pending_.empty() && parse_some()) {
    if (phase_ != Phase::kReading) return;
  }
  if (!client_ended_) return;
  if (phase_ == Phase::kIdle) return close();
  refuse({400, "the request ends too early"});
}

// False when more bytes are needed to go on.
bool HttpConnection::parse_some() {
  const bool in_head = !parser_->is_header_done();
  error_code error;
  const size_t used = parser_->put(asio::buffer(pending_), error);
  pending_.erase(0, used);
  const bool needs_more = error == http::error::need_more;
  // The parser's own limit is of what it is given at once.
  if (in_head) head_bytes_ += used;
  const size_t unparsed = needs_more ? pending_.size() : 0;
  const bool too_long =
      static_cast<int64_t>(in_head ? head_bytes_ + unparsed : unparsed) > limits_.header_bytes;
  if (too_long || error == http::error::header_limit) {
    refuse({431, "the headers have more than " + std::to_string(limits_.header_bytes) +
                     " bytes; send fewer"});
    return true;
  }
  if (!count_body()) {
    refuse({503, "the server reads too many requests; try again later"}, {{"Retry-After", "1"}});
    return true;
  }
  if (needs_more) return false;
  if (error) {
    refuse(fault(error, limits_));
    return true;
  }
  if (in_head && parser_->is_header_done()) refuse_bad_head();
  if (phase_ == Phase::kReading && (parser_->is_done() || route_->in_pieces)) handle();
  return true;
}

// False where all bodies together have more bytes than they may.
bool HttpConnection::count_body() {
  // The parser takes memory for all that the head announces.
  const auto bytes = static_cast<int64_t>(parser_->get().body().capacity());
  const int64_t more = bytes - std::exchange(body_bytes_, bytes);
  return more == 0 || bodies_.fetch_add(more) + more <= limits_.bodies_bytes;
}

void HttpConnection::forget_body() {
  if (parser_) parser_->get().body() = std::string();
  bodies_.fetch_sub(std::exchange(body_bytes_, 0));
}

// Before the body is read.
void HttpConnection::refuse_bad_head() {
  const auto& head = parser_->get();
  form_ = {.version = head.version(),
           .head_only = head.method() == http::verb::head,
           .keep_alive = head.version() == 11 && parser_->keep_alive()};
  const size_t codings = head.count(http::field::transfer_encoding);
  if (codings > 0 && (codings > 1 || form_.version < 11 ||
                      !beast::iequals(head[http::field::transfer_encoding], "chunked"))) {
    form_.keep_alive = false;  // who knows where the body ends
    return refuse({501, "transfer-encoding must be chunked alone, by HTTP/1.1"});
  }
  const size_t hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && form_.version == 11)) {
    return refuse({400, "there must be one host header"});
  }
  // Who stands before this server may have looked at another one than would be taken here.
  for (const http::field once :
       {http::field::authorization, http::field::content_type, http::field::origin}) {
    if (head.count(once) > 1) {
      return refuse(
          {400, "there must be one " + std::string(view(to_string(once))) + " header at most"});
    }
  }
  route_ = find_route();
  if (route_ == nullptr || !bound_body()) return;
  const beast::string_view expected = head[http::field::expect];
  if (form_.version < 11 || expected.empty() || parser_->is_done()) return;
  if (!beast::iequals(expected, "100-continue")) {
    return refuse({417, "expect must be 100-continue"});
  }
  waits_to_continue_ = true;
  if (!route_->in_pieces) let_continue();  // a handler that takes pieces asks for the first
}

// The client may send the body, if it waits to be told.
void HttpConnection::let_continue() {
  if (!std::exchange(waits_to_continue_, false)) return;
  enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  write();
}

// The route of the request; null when it was refused.
const HttpRoute* HttpConnection::find_route() {
  const auto& head = parser_->get();
  const std::string_view target = view(head.target());
  const std::string_view path = target.substr(0, target.find('?'));
  const std::string_view method = form_.head_only ? "GET" : view(head.method_string());
  std::string allow;
  for (const HttpRoute& route : routes_) {
    if (!match(route.path, path)) continue;
    if (route.method == method) return &route;
    allow += (allow.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
  }
  if (allow.empty()) {
    refuse({404, "nothing is served at this path"});
  } else {
    refuse({405, "this path takes " + allow}, {{"Allow", allow}});
  }
  return nullptr;
}

// False where the request was refused, because its body is longer than it may be.
bool HttpConnection::bound_body() {
  if (route_->in_pieces) return true;
  const auto most = static_cast<uint64_t>(limits_.body_bytes);
  parser_->body_limit(most);  // of chunks
  if (parser_->content_length().value_or(0) <= most) return true;
  refuse(body_too_long(limits_));
  return false;
}

void HttpConnection::handle() {
  phase_ = Phase::kAnswering;
  if (route_->in_pieces) form_.keep_alive = false;  // the rest of the body may never be taken
  set_deadline(writing_ ? limits_.write_timeout : kForever);  // a "100 Continue" may be stuck
  const Parser::value_type& message = parser_->get();
  const std::string_view target = view(message.target());
  const HttpRequest request = {
      .method = view(message.method_string()),
      .target = target,
      .part = match(route_->path, target.substr(0, target.find('?'))).value(),
      .body = message.body(),
      .peer = peer_,
      .header = [&](std::string_view name) {
        return view(message[beast::string_view(name.data(), name.size())]);
      }};
  route_->handle(request, HttpReply(std::make_shared<HttpReply::Exchange>(
                              worker_.weak_from_this(), weak_from_this(), form_, waiting_)));
  forget_body();
  if (route_->in_pieces) {
    pieces_ = std::make_unique<PieceParser>(std::move(*parser_));
    pieces_->eager(true);
  }
  parser_.reset();
  if (client_ended_) tell_gone();
}

void HttpConnection::read_body(BodyTaker take) {
  if (phase_ != Phase::kAnswering || complete_) return;
  take_ = std::move(take);
  let_continue();
  pass_piece();
}

// Gives what there is of the body to whoever waits for it.
void HttpConnection::pass_piece() {
  if (!take_ || pieces_ == nullptr) return;
  auto& body = pieces_->get().body();
  body.data = worker_.piece.data();
  body.size = worker_.piece.size();
  error_code error;
  if (!pieces_->is_done() && !pending_.empty()) {
    pending_.erase(0, pieces_->put(asio::buffer(pending_), error));
  }
  const size_t bytes = worker_.piece.size() - body.size;
  const bool waits = !error || error == http::error::need_more;
  if (bytes > 0 || pieces_->is_done()) {
    take_.tell(std::string_view(worker_.piece.data(), bytes));
  } else if (waits && client_ended_) {
    take_.tell(invalid_argument("the body ends too early"));
  } else if (!waits || pending_.size() >= kReadBytes) {
    take_.tell(invalid_argument("the body is not HTTP/1.1: " + error.message()));
  }
  read();
}

void HttpConnection::refuse(HttpRefusal refusal, const Headers& headers) {
  refusal.peer = peer_;
  if (on_refusal_) on_refusal_(refusal);
  HttpAnswer answer = http_error(refusal.status, refusal.message);
  // What follows a request that was not read to its end is not the next one.
  form_.keep_alive = form_.keep_alive && parser_->is_done();
  forget_body();
  phase_ = Phase::kAnswering;
  if (writing_) set_deadline(limits_.write_timeout);
  enqueue(head_text(form_, answer.status, answer.content_type, answer.body.size(), headers));
  if (!form_.head_only) enqueue(std::move(answer.body));
  complete();
  write();
}

void HttpConnection::deliver(std::vector<Piece> pieces, bool last) {
  if (phase_ != Phase::kAnswering) return;
  waits_to_continue_ = false;
  for (Piece& piece : pieces) {
    if (!piece.bytes.empty()) {
      outgoing_.push_back(std::move(piece));
    } else {
      piece.taken.tell(true);
    }
  }
  if (last) {
    complete();
    on_gone_ = nullptr;
    take_ = {};
  }
  if (outgoing_.empty()) {
    if (complete_) answered();
  } else {
    write();
  }
}

void HttpConnection::enqueue(std::string bytes) {
  waiting_->fetch_add(std::ssize(bytes));
  outgoing_.push_back({std::move(bytes)});
}

void HttpConnection::complete() {
  complete_ = true;
  const std::chrono::seconds more(waiting_->load() / limits_.slowest_bytes);
  done_by_ = std::chrono::steady_clock::now() + limits_.write_timeout + more;
}

void HttpConnection::write() {
  if (writing_) return;
  writing_ = true;
  const Duration left = done_by_ - std::chrono::steady_clock::now();
  if (phase_ == Phase::kAnswering) set_deadline(std::min(limits_.write_timeout, left));
  std::array<asio::const_buffer, kBuffersPerWrite> buffers;
  const size_t count = std::min(buffers.size(), outgoing_.size());
  for (size_t i = 0; i < count; ++i) buffers[i] = asio::buffer(outgoing_[i].bytes);
  buffers[0] += written_;
  socket_.async_write_some(buffers, bound(&HttpConnection::on_write));
}

void HttpConnection::on_write(error_code error, size_t bytes) {
  writing_ = false;
  if (error) return close();
  waiting_->fetch_sub(static_cast<int64_t>(bytes));
  written_ += bytes;
  while (!outgoing_.empty() && written_ >= outgoing_.front().bytes.size()) {
    written_ -= outgoing_.front().bytes.size();
    Taken taken = std::move(outgoing_.front().taken);
    outgoing_.pop_front();
    taken.tell(true);
  }
  if (!outgoing_.empty()) return write();
  if (phase_ != Phase::kAnswering) return;
  set_deadline(heartbeat_.empty() || complete_ ? kForever : limits_.heartbeat);
  if (complete_) answered();
}

void HttpConnection::answered() {
  if (form_.keep_alive) {
    next_request();
    parse();
    return read();
  }
  phase_ = Phase::kHangingUp;
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  if (client_ended_) return close();
  const bool in_pieces = route_ != nullptr && route_->in_pieces;  // much may still be on its way
  set_deadline(in_pieces ? limits_.write_timeout : kLinger);
  read();
}

void HttpConnection::set_deadline(Duration from_now) {
  // on_deadline() tells an expired wait, already queued, from the new one by the expiry.
  if (from_now == kForever) {
    timer_.expires_at(asio::steady_timer::time_point::max());
    return;
  }
  timer_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(from_now));
  timer_.async_wait(bound(&HttpConnection::on_deadline));
}

void HttpConnection::on_deadline(error_code error, size_t) {
  if (error || timer_.expiry() > asio::steady_timer::clock_type::now()) return;
  if (phase_ == Phase::kAnswering && !writing_) {
    enqueue(heartbeat_);
    return write();
  }
  if (phase_ != Phase::kReading) return close();
  refuse({408, "the request took too long to come"});
}

void HttpConnection::tell_gone() {
  if (const auto gone = std::exchange(on_gone_, nullptr)) gone();
}

HttpAnswer http_error(int status, std::string_view message) {
  const char* const type = status < 500 ? "invalid_request_error" : "server_error";
  return {status, "application/json",
          R"({"error":{"message":")" + std::string(message) + R"(","type":")" + type +
              "\",\"param\":null,\"code\":null}}\n"};
}

int64_t http_bytes(const HttpLimits& limits) {
  const int64_t count = limits.connections.in_all;
  return count * (kConnectionBytes + kHeaderFactor * limits.header_bytes) +
         2 * std::min(count * limits.body_bytes, limits.bodies_bytes);
}

HttpServer::HttpServer(HttpLimits limits, std::vector<HttpRoute> routes, const EventLog& log,
                       OnHttpRefusal on_refusal)
    : limits_(std::move(limits)),
      routes_(std::move(routes)),
      log_(log),
      on_refusal_(std::move(on_refusal)) {
  check(limits_.header_bytes <= kMaxHeaderBytes, "a header's length fits the parser");
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::start(ListenSockets sockets) {
  for (int i = 0; i < limits_.threads; ++i) {
    workers_.push_back(std::make_shared<HttpWorker>());
    threads_.emplace_back([worker = workers_.back().get()] { worker->context.run(); });
  }
  listener_ = std::make_unique<Listener>(std::move(sockets), limits_.connections, log_);
  listener_->start([this](int socket) { take(socket); });
}

// Runs on the listener's thread. Without memory for the connection, it is closed.
void HttpServer::take(int socket) {
  HttpWorker& worker = *workers_[next_++ % workers_.size()];
  AcceptedSocket accepted(socket);
  try {
    asio::post(worker.context, [this, &worker, accepted = std::move(accepted)]() mutable {
      try {
        const auto connection = std::make_shared<HttpConnection>(
            worker, std::move(accepted), limits_, routes_, bodies_, on_refusal_);
        connection->run([&] { connection->start(); });
      } catch (const std::bad_alloc&) {
      }
    });
  } catch (const std::bad_alloc&) {
  }
}

void HttpServer::stop() {
  if (listener_ != nullptr) listener_->stop();
  for (const auto& worker : workers_) {
    asio::post(worker->context, [&worker = *worker] {
      for (const auto& connection : std::set(worker.connections)) connection->close();
      worker.stays.reset();
    });
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  workers_.clear();
}

}  // namespace runnel
