// Streams, events, and graphs.

#include "exports.h"
#include "launch_log.h"
#include "options.h"

using namespace fake_driver;

Result cuStreamCreate(Stream* stream, unsigned) {
  return with_context([&](ContextState& context) {
    if (is_failing(context, ++context.streams_asked, options().fail_stream)) return kOutOfMemory;
    auto* queue = new StreamQueue;
    context.streams.insert(queue);
    *stream = reinterpret_cast<Stream>(queue);
    return kSuccess;
  });
}

Result cuStreamDestroy_v2(Stream stream) {
  const std::lock_guard lock(state().mutex);
  ContextState* context = current();
  if (!context) return kInvalidContext;
  StreamQueue& queue = stream_of(*context, stream);
  if (context->failure == kSuccess) queue.run_all();
  context->streams.erase(&queue);
  delete &queue;
  return context->failure;
}

Result cuStreamSynchronize(Stream stream) {
  return with_context([&](ContextState& context) {
    StreamQueue& queue = stream_of(context, stream);
    if (queue.capture) return kCaptureUnsupported;
    queue.run_all();
    if (is_dry_run()) log_synchronization();
    return kSuccess;
  });
}

Result cuEventCreate(Event* event, unsigned) {
  return with_context([&](ContextState& context) {
    auto* mark = new EventMark;
    context.events.insert(mark);
    *event = reinterpret_cast<Event>(mark);
    return kSuccess;
  });
}

Result cuEventDestroy_v2(Event event) {
  const std::lock_guard lock(state().mutex);
  auto* mark = reinterpret_cast<EventMark*>(event);
  ContextState* context = current();
  if (!context) return kInvalidContext;
  if (context->events.erase(mark) == 0) misuse("an event is destroyed that does not exist");
  delete mark;
  return context->failure;
}

Result cuEventRecord(Event event, Stream stream) {
  return with_context([&](ContextState& context) {
    StreamQueue& queue = stream_of(context, stream);
    auto* mark = reinterpret_cast<EventMark*>(event);
    if (!context.events.contains(mark)) misuse("an event is recorded that does not exist");
    *mark = {&queue, queue.queued};
    return kSuccess;
  });
}

Result cuEventSynchronize(Event event) {
  return with_context([&](ContextState& context) {
    auto* mark = reinterpret_cast<EventMark*>(event);
    if (!context.events.contains(mark)) misuse("an event is waited for that does not exist");
    // An event that was never recorded counts as complete.
    if (mark->stream) mark->stream->run_until(mark->position);
    return kSuccess;
  });
}

Result cuEventElapsedTime(float* milliseconds, Event begin, Event end) {
  return with_context([&](ContextState& context) {
    auto* first = reinterpret_cast<EventMark*>(begin);
    auto* last = reinterpret_cast<EventMark*>(end);
    if (!context.events.contains(first) || !context.events.contains(last)) {
      misuse("the time between events that do not exist is asked for");
    }
    if (!first->stream || first->stream != last->stream) return kInvalidHandle;
    if (last->stream->completed < last->position) return kNotReady;
    // Each piece of work counts as a microsecond.
    *milliseconds = 1e-3f * static_cast<float>(last->position - first->position);
    return kSuccess;
  });
}

Result cuStreamBeginCapture_v2(Stream stream, int) {
  return with_context([&](ContextState& context) {
    StreamQueue& queue = stream_of(context, stream);
    if (queue.capture) misuse("a stream that is capturing begins another capture");
    queue.capture = new GraphWork;
    queue.ends_in_kernel = false;
    return kSuccess;
  });
}

Result cuStreamEndCapture(Stream stream, Graph* graph) {
  return with_context([&](ContextState& context) {
    StreamQueue& queue = stream_of(context, stream);
    if (!queue.capture) misuse("a stream ends a capture that it has not begun");
    context.graphs.insert(queue.capture);
    *graph = reinterpret_cast<Graph>(queue.capture);
    queue.capture = nullptr;
    queue.ends_in_kernel = false;
    return kSuccess;
  });
}

Result cuGraphInstantiateWithFlags(GraphExec* executable, Graph graph, unsigned long long) {
  return with_context([&](ContextState& context) {
    auto* work = reinterpret_cast<GraphWork*>(graph);
    if (!context.graphs.contains(work)) misuse("a graph is instantiated that does not exist");
    auto* copy = new GraphWork(*work);
    context.graphs.insert(copy);
    const uint64_t most = options().most_graphs;
    if (most > 0 && context.graphs.size() > most) misuse("there are more than %lu graphs", most);
    *executable = reinterpret_cast<GraphExec>(copy);
    return kSuccess;
  });
}

Result cuGraphLaunch(GraphExec executable, Stream stream) {
  return with_context([&](ContextState& context) {
    auto* work = reinterpret_cast<GraphWork*>(executable);
    if (!context.graphs.contains(work)) misuse("a graph is launched that does not exist");
    StreamQueue& queue = stream_of(context, stream);
    for (const Work& node : work->nodes) queue.add(node);
    return kSuccess;
  });
}

namespace {

Result destroy_graph(GraphWork* work) {
  const std::lock_guard lock(state().mutex);
  ContextState* context = current();
  if (!context) return kInvalidContext;
  if (context->graphs.erase(work) == 0) misuse("a graph is destroyed that does not exist");
  delete work;
  return context->failure;
}

}  // namespace

Result cuGraphExecDestroy(GraphExec executable) {
  return destroy_graph(reinterpret_cast<GraphWork*>(executable));
}

Result cuGraphDestroy(Graph graph) { return destroy_graph(reinterpret_cast<GraphWork*>(graph)); }
