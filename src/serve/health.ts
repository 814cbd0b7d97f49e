import type { Service } from "./service.ts";

/** `GET /health`: that the server takes requests, and how many answers are under way. */
export function health({ admission }: Service): Response {
  return Response.json({ status: "ok", answers: admission.taken });
}
