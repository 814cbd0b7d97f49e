/** Tests that stdout holds only the answer, for any reader and any end. */
import { assert, assertEquals } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama, writeRandomLlama } from "../support/tiny_llama.ts";
import { within } from "../support/wait.ts";
import { denoArgs, startForge } from "./forge.ts";

const noShell = Deno.build.os === "windows";

/** Runs a shell command in which `$FORGE` is the program. */
async function shell(command: string, env: Record<string, string> = {}) {
  const quoted = [Deno.execPath(), ...denoArgs([])].map((part) => `'${part}'`).join(" ");
  const { code, stdout, stderr } = await new Deno.Command("sh", {
    args: ["-c", `forge() { ${quoted} "$@"; }\n${command}`],
    stdin: "null",
    env,
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test({
  name: "streams: a reader that closes the pipe early causes no error output",
  ignore: noShell,
  async fn() {
    using folder = new TempFolder();
    writeEndlessLlama(folder.path);
    const run = `forge run -m '${folder.path}' -p x --temp 0 -n 3000 | head -c 20`;
    const { code, stdout, stderr } = await shell(run);
    assertEquals({ code, length: stdout.length, stderr }, { code: 0, length: 20, stderr: "" });
  },
});

Deno.test({
  name: "streams: a file gets exactly the text, and a full disk is an error",
  ignore: noShell,
  async fn() {
    using folder = new TempFolder();
    writeRandomLlama(folder.at("model"));
    const run = `forge run -m '${folder.at("model")}' -p x --temp 0 -n 20`;
    const piped = await shell(run);
    const file = folder.at("out.txt");
    assertEquals((await shell(`${run} > '${file}'`)).stderr, "");
    assertEquals(Deno.readTextFileSync(file), piped.stdout);
    if (Deno.build.os === "linux") {
      const full = await shell(`${run} > /dev/full`);
      assertEquals(full.code, 1);
      assert(full.stderr.startsWith("forge: error: cannot write to stdout"), full.stderr);
    }
  },
});

Deno.test({
  name: "streams: Ctrl-C keeps what was generated and exits with 130",
  ignore: noShell,
  async fn() {
    using folder = new TempFolder();
    writeEndlessLlama(folder.path);
    for (const json of [false, true]) {
      const args = ["run", "-m", folder.path, "-p", "x", "--temp", "0", "-n", "30000"];
      // JSON is written only at the end, so the output of --verbose shows when to interrupt.
      const more = json ? ["--json", "--device", "reference", "--verbose"] : [];
      const child = startForge([...args, ...more], { stdout: "piped", stderr: "piped" });
      const output = new Pipe(child.stdout), errors = new Pipe(child.stderr);
      await (json ? errors.readUntil(/^prompt +\d+ tokens?\n/m) : output.readUntil(/./));
      const before = errors.text;
      child.kill("SIGINT");
      await Promise.all([output.readUntil(), errors.readUntil()]);
      assertEquals([(await child.status).code, errors.text], [130, before]);
      assert(json || before === "", before);
      assert(output.text.length > 0);
      if (json) assertEquals(JSON.parse(output.text).finish_reason, "cancelled");
    }
  },
});

/** Collects the output of a process. */
class Pipe {
  readonly #reader: ReadableStreamDefaultReader<string>;
  text = "";

  constructor(bytes: ReadableStream<Uint8Array<ArrayBuffer>>) {
    this.#reader = bytes.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** Reads until the text matches or the output ends. */
  async readUntil(pattern?: RegExp): Promise<void> {
    while (pattern === undefined || !pattern.test(this.text)) {
      const next = this.#reader.read();
      const { value, done } = await within(next, () => `further output than ${this.text}`);
      if (done) return;
      this.text += value;
    }
  }
}
