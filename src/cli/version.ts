import config from "../../deno.json" with { type: "json" };

/** The version of forge. */
export const VERSION: string = config.version;
