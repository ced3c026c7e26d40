// Node's own fetch with a base URL that is resolved (new URL), as Playwright and many SDKs do.
const base = process.env.REPLAYPROXY_URL_APP;
const call = async (path, options) => (await fetch(new URL(path, base), options)).status;
console.log(JSON.stringify([await call("/counter"), await call("/inc", { method: "POST" }), await call("/old")]));
