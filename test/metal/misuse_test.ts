/**
 * Mistakes seeded into the Metal backend's host side: the stand-in for Metal must end the process.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { bundledModel } from "../../src/cli/model/model_path.ts";
import { forge } from "../cli/forge.ts";
import { buildFakeMetal, type HostChange } from "../emulator/fake_metal/build.ts";
import { drawn } from "../support/thorough.ts";
import { emulatedMetal, emulatedMetalUnavailable } from "./emulated_metal.ts";

const ignore = emulatedMetalUnavailable() !== undefined;
const SIGABRT = 134;

/**
 * A prompt of more tokens than a decode kernel takes, for kernels with much memory of their own.
 */
const LONG_PROMPT = "Once upon a time there was a little dog who lived in a big red house. ".repeat(
  2,
);

const mistakes: readonly (readonly [what: string, said: string, change: HostChange])[] = [
  ["an encoder that is left open", "endEncoding", {
    file: "commands.mm",
    from: "[static_cast<id<MTLCommandEncoder>>(encoder_.get()) endEncoding];",
    to: "",
  }],
  ["an offset that is off by one", "at multiples of", {
    file: "commands.mm",
    from: "offset:bound.offset atIndex",
    to: "offset:bound.offset + 1 atIndex",
  }],
  ["a struct that is not given", "gets no argument", {
    file: "commands.mm",
    from: "[encoder setBytes:scalars.data() length:scalars.size() atIndex:index];",
    to: "if (scalars.empty()) return;",
  }],
  ["a struct of another size", "bytes as argument", {
    file: "commands.mm",
    from: "length:scalars.size() atIndex",
    to: "length:scalars.size() / 2 atIndex",
  }],
  ["threadgroup memory that is not given", "threadgroup memory", {
    file: "commands.mm",
    from: "[encoder setThreadgroupMemoryLength:",
    to: "if (launch.scalars().empty()) [encoder setThreadgroupMemoryLength:",
  }],
  ["threadgroup memory left by an earlier pipeline", "more are set", {
    file: "commands.mm",
    from: "[encoder setThreadgroupMemoryLength:launch.set_threadgroup_bytes() atIndex:0];",
    to: "if (group.memory > 0) [encoder setThreadgroupMemoryLength:24 << 10 atIndex:0];",
  }],
  ["a buffer left by an earlier pipeline", "gets no argument", {
    file: "commands.mm",
    from: "const Place bound = place ? place : filler;",
    to: "const Place bound = place ? place : filler; if (!place) { ++index; continue; }",
  }],
  ["a norm that overwrites its own input", "which is also its argument", {
    file: "plan_rows.cpp",
    from: "geometry, buffers, scalars);",
    to:
      'geometry, buffers, scalars); if (instance == "rms_norm") { std::vector<Place> own(buffers.begin(), buffers.end()); own[0] = own[1]; plan_.entries.back() = Launch(device_.kernels.get(kernel, instance), geometry, own, scalars); }',
  }],
  ["an object that is released twice", "after its release", {
    file: "object.mm",
    from: "[static_cast<id<NSObject>>(pointer_) release];",
    to:
      "[static_cast<id<NSObject>>(pointer_) release]; [static_cast<id<NSObject>>(pointer_) release];",
  }],
  ["the contents of a private buffer", "contents of a private buffer", {
    file: "buffer.mm",
    from: "if (is_shared) data_",
    to: "data_",
  }],
  ["a buffer that stays in the residency set", "are left in a residency set", {
    file: "buffer.mm",
    from: "  device_->residency().remove(object_.get());\n",
    to: "",
  }],
  ["an object that nobody releases", "objects of FakeQueue are left", {
    file: "device.mm",
    from: "queue_ = Object([device newCommandQueue]);",
    to: "queue_ = Object([[device newCommandQueue] retain]);",
  }],
];

Deno.test({
  name: "the stand-in for Metal does not run what follows a failed command buffer",
  ignore,
  fn: async () => {
    const env = await emulatedMetal({ fail_commands: 2 });
    const library = await buildFakeMetal({
      file: "commands.mm",
      from: "for (Commands& each : buffers_) each.wait(what);",
      to: "buffers_.back().wait(what);",
    });
    const args = ["run", "--device", "metal", "-m", bundledModel(), "-p", LONG_PROMPT, "-n", "2"];
    const { code, stderr } = await forge(args, { env: { ...env, FORGE_LIBRARY_PATH: library } });
    assertEquals(code, 1, stderr);
    assertStringIncludes(stderr, "Ignored (for causing prior/excessive GPU errors)");
  },
});

for (const [what, said, change] of drawn("misuse of Metal", mistakes, 1 / 2)) {
  Deno.test({
    name: `the stand-in for Metal notices ${what}`,
    ignore,
    fn: async () => {
      const env = { FORGE_LIBRARY_PATH: await buildFakeMetal(change) };
      const args = ["run", "--device", "metal", "-m", bundledModel(), "-p", LONG_PROMPT, "-n", "2"];
      const { code, stderr } = await forge([...args, "--temp", "0"], { env });
      assertEquals(code, SIGABRT, stderr);
      assertStringIncludes(stderr, said);
    },
  });
}
