import { h } from "../dom.js";
import { Composer } from "./composer.js";
import { showDialog } from "./dialogs.js";
import { displayName } from "../state/directory.js";

/** A dialog that shares a message in a channel, with a member, or in its own thread, with an optional comment. */
export function openShareDialog(session, channelId, message, inThread) {
  const { directory } = session;
  const thread = inThread ? [h("option", { value: channelId, dataset: { thread: message.thread_ts ?? message.ts } }, "This thread")] : [];
  const channels = directory.openChannels.map(({ id, name }) => h("option", { value: id, selected: !inThread && id === channelId }, `#${name}`));
  const people = directory.partners.map((user) => h("option", { value: user.id }, displayName(user)));
  const place = h("select", { class: "block-select", testid: "share-place" }, thread, channels, people);
  const share = async (typed) => {
    await session.forward(channelId, message.ts, place.value, typed, place.selectedOptions[0].dataset.thread);
    dialog.close();
  };
  const composer = new Composer(session, {
    label: "Comment",
    placeholder: "Add a comment, if you like",
    testid: "share-comment",
    actions: { save: "Share", cancel: () => dialog.close() },
    optional: true,
    onSubmit: share,
  });
  const heading = h("h2", {}, "Share this message");
  const dialog = h("dialog", { class: "share", testid: "share-dialog", "aria-label": "Share this message" }, heading, h("label", {}, "In", place), composer.element);
  showDialog(dialog);
  composer.focus();
}
