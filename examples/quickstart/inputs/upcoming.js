import { readFile } from "node:fs/promises";

const DAY_MS = 24 * 60 * 60 * 1000;

export async function upcoming(path, now = new Date()) {
  const events = JSON.parse(await readFile(path, "utf8"));
  return events
    .map((event) => ({ ...event, date: new Date(event.date) }))
    .filter(({ date }) => date >= now && date - now < 7 * DAY_MS)
    .sort((a, b) => a.date - b.date);
}

const [, , path = "events.json"] = process.argv;
for (const { date, title } of await upcoming(path)) {
  console.log(`${date.toISOString().slice(0, 10)}  ${title}`);
}
