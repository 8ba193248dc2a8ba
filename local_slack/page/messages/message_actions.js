import { h, icon, iconButton } from "../dom.js";
import { dropdown } from "./elements.js";
import { Composer } from "../panes/composer.js";
import { openShareDialog } from "../panes/share_dialog.js";
import { pickEmoji } from "../panes/emoji_picker.js";
import { QUICK, emojiFor } from "../text/emoji.js";
import { decode } from "../text/mrkdwn.js";

/** The actions of a message: toolbar, editor, confirmation of a deletion, and errors. */
export class MessageActions {
  #session;
  #channelId;
  #view;
  #inThread;
  #toolbarKind = null;
  #notice = h("div", { class: "notice", hidden: true });
  #editor = null;

  constructor(session, channelId, view, inThread) {
    this.#session = session;
    this.#channelId = channelId;
    this.#view = view;
    this.#inThread = inThread;
    view.body.append(this.#notice);
    this.toolbar = h("div", { class: "toolbar", role: "toolbar", "aria-label": "Message actions" });
    view.element.append(this.toolbar);
  }

  update(message) {
    const kind = [message.subtype === "tombstone", message.is_ephemeral, this.#isMine(message)].join();
    if (kind === this.#toolbarKind) return;
    this.#toolbarKind = kind;
    this.toolbar.replaceChildren(...this.#buttons(message));
    this.toolbar.hidden = this.toolbar.childElementCount === 0;
  }

  fail(error) {
    const close = iconButton("close", "Dismiss", () => this.#hideNotice());
    this.#showNotice("alert", h("span", {}, error.message), close);
  }

  /** Hide the error of an earlier attempt. */
  forgetFailure() {
    if (this.#notice.getAttribute("role") === "alert") this.#hideNotice();
  }

  get canEdit() {
    return this.#isMine(this.#view.message) && this.#view.message.subtype !== "tombstone";
  }

  edit() {
    if (this.#editor) return;
    const { message, element, text } = this.#view;
    this.#editor = new Composer(this.#session, {
      label: "Edit message",
      testid: "edit-composer",
      initial: decode(message.text, this.#session.directory),
      actions: { save: "Save", cancel: () => this.#endEdit() },
      onSubmit: (typed) => this.#save(typed),
    });
    text.after(this.#editor.element);
    element.classList.add("editing");
    this.#editor.focus();
  }

  confirmDelete() {
    const keep = h("button", { type: "button", class: "plain-button", onclick: () => this.#hideNotice() }, "Cancel");
    const drop = h("button", { type: "button", class: "danger-button", testid: "confirm-delete", onclick: () => this.#delete() }, "Delete");
    this.#showNotice("group", h("span", {}, "Delete this message for everyone?"), h("div", { class: "notice-actions" }, drop, keep));
    this.#notice.onkeydown = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.#hideNotice();
    };
    drop.focus();
  }

  #isMine(message) {
    return message.user === this.#session.me.id && !message.bot_id;
  }

  #buttons(message) {
    if (message.is_ephemeral) return [];
    const isGone = message.subtype === "tombstone";
    const { reactions } = this.#view;
    const quick = QUICK.map((name) => this.#quickButton(name, () => reactions.toggle(name)));
    const pick = (event) => pickEmoji(event.currentTarget, (name) => reactions.toggle(name));
    const buttons = isGone ? [] : [...quick, iconButton("smile", "Another reaction", pick, { "data-testid": "pick-reaction" })];
    if (!this.#inThread) buttons.push(this.#replyButton(message));
    if (!isGone) {
      const share = () => openShareDialog(this.#session, this.#channelId, this.#view.message, this.#inThread);
      buttons.push(iconButton("share", "Share message…", share, { "data-testid": "share-message" }));
    }
    if (!isGone && this.#isMine(message)) {
      buttons.push(
        iconButton("pencil", "Edit", () => this.edit(), { "data-testid": "edit-message" }),
        iconButton("trash", "Delete", () => this.confirmDelete(), { "data-testid": "delete-message" }),
      );
    }
    const shortcuts = isGone ? [] : this.#session.directory.shortcuts.filter((each) => each.type === "message");
    if (shortcuts.length) buttons.push(this.#moreActions(shortcuts));
    return buttons;
  }

  #moreActions(shortcuts) {
    const use = async (event, id) => {
      event.currentTarget.closest("details").open = false;
      this.forgetFailure();
      await this.#session.useShortcut(id, this.#channelId, this.#view.message.ts).catch((error) => this.fail(error));
    };
    const items = shortcuts.map(({ callback_id: id, name }) => h("button", { type: "button", testid: `shortcut-${id}`, onclick: (event) => use(event, id) }, name));
    return dropdown("overflow more-actions", null, [icon("dots")], "More actions", items);
  }

  #quickButton(name, onclick) {
    const label = `React with ${name}`;
    return h("button", { type: "button", class: "icon-button emoji", testid: `quick-react-${name}`, "aria-label": label, title: label, onclick }, emojiFor(name));
  }

  #replyButton(message) {
    const root = message.thread_ts ?? message.ts;
    const open = async () => {
      await this.#session.openThread(root);
      document.querySelector("[data-testid=thread-pane] textarea")?.focus();
    };
    return iconButton("reply", "Reply in thread", open, { "data-testid": "open-thread" });
  }

  async #save(typed) {
    await this.#session.edit(this.#channelId, this.#view.message.ts, typed);
    this.#endEdit();
  }

  #endEdit() {
    this.#editor?.element.remove();
    this.#editor = null;
    this.#view.element.classList.remove("editing");
    this.#view.element.closest(".pane")?.querySelector(".pane-composer textarea")?.focus();
  }

  async #delete() {
    this.#hideNotice();
    try {
      await this.#session.delete(this.#channelId, this.#view.message.ts);
    } catch (error) {
      if (error.code !== "message_not_found") this.fail(error);
    }
  }

  #showNotice(role, ...children) {
    this.#notice.setAttribute("role", role);
    this.#notice.classList.toggle("failure", role === "alert");
    this.#notice.replaceChildren(...children);
    this.#notice.hidden = false;
    this.#notice.scrollIntoView({ block: "nearest" });
  }

  #hideNotice() {
    this.#notice.hidden = true;
    this.#notice.onkeydown = null;
  }
}
