/** Tests what several processes that divide a model do not take. */
import { assertEquals, assertRejects } from "@std/assert";
import { assist, openGroup } from "../../../../src/engine/processes/group.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { fakeCheckpoint } from "../../models/fakes.ts";

type GroupOptions = Parameters<typeof openGroup>[1];

Deno.test("options that do not go together with several processes are rejected", async () => {
  const processes = { index: 0, count: 2, host: "localhost", port: 1, secret: "0123456789abcdef" };
  const second = { ...processes, index: 1 };
  const usage = "only a process other than process 0 of several can assist";
  const replicas =
    "several processes divide one replica; for replicas, start forge for each of them";
  const refused: [Partial<GroupOptions>, code: string, message: string][] = [
    [{ dataParallel: 2 }, "usage", replicas],
    [{ draftModel: "m" }, "unsupported", "draft models are not divided among processes"],
    [{ kvDir: "d" }, "unsupported", "saved keys and values are not divided among processes"],
    [{ processes: second }, "usage", "process 1 cannot load the model; it assists"],
    [
      { processes: { ...processes, port: 0 } },
      "usage",
      "processes.port is 0; valid is a whole number from 1 to 65535",
    ],
    [
      { device: "cpu", dataParallel: 1, tensorParallel: 2 },
      "usage",
      'several processes divide a model among CUDA devices; the devices of this one are "cpu"',
    ],
  ];
  for (const [options, code, message] of refused) {
    const open = () => openGroup(fakeCheckpoint({}), { processes, ...options });
    const error = await assertRejects(open, ForgeError);
    assertEquals([error.code, error.message], [code, message]);
  }
  for (const options of [{}, { processes }]) {
    const error = await assertRejects(() => assist("no such model", options), ForgeError);
    assertEquals([error.code, error.message], ["usage", usage]);
  }
  const assisted = () => assist("no such model", { processes: second, kvDir: "d" });
  assertEquals((await assertRejects(assisted, ForgeError)).code, "unsupported");
});
