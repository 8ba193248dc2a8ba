/** Slack's names and their characters. Without a search, the picker shows the first rows. */
const COMMON_COUNT = 84;

const TABLE = `
+1,thumbsup 👍|heart ❤️|joy 😂|eyes 👀|white_check_mark ✅|x ❌|tada 🎉|pray 🙏|raised_hands 🙌|clap 👏|fire 🔥|rocket 🚀
-1,thumbsdown 👎|ok_hand 👌|wave 👋|muscle 💪|point_up ☝️|point_right 👉|point_left 👈|point_down 👇|handshake 🤝|crossed_fingers 🤞|v ✌️|100 💯
smile 😄|grinning 😀|slightly_smiling_face 🙂|wink 😉|blush 😊|heart_eyes 😍|star-struck 🤩|sunglasses 😎|thinking_face,thinking 🤔|face_with_monocle 🧐|sweat_smile 😅|rolling_on_the_floor_laughing,rofl 🤣
upside_down_face 🙃|relieved 😌|neutral_face 😐|face_with_raised_eyebrow 🤨|grimacing 😬|cry 😢|sob 😭|exploding_head 🤯|flushed 😳|scream 😱|partying_face 🥳|hugging_face 🤗
hourglass_flowing_sand ⏳|hourglass ⌛|incoming_envelope 📨|gear ⚙️|robot_face 🤖|octagonal_sign 🛑|warning ⚠️|bulb 💡|mag 🔍|memo,pencil 📝|sparkles ✨|star ⭐
owl 🦉|fox_face 🦊|crystal_ball 🔮|compass 🧭|hammer_and_wrench 🛠️|wrench 🔧|bug 🐛|package 📦|lock 🔒|key 🔑|link 🔗|pushpin 📌
heavy_check_mark ✔️|heavy_plus_sign ➕|question ❓|exclamation,heavy_exclamation_mark ❗|bell 🔔|calendar 📆|coffee ☕|pizza 🍕|cake 🍰|beers 🍻|seedling 🌱|rainbow 🌈
rage 😡|angry 😠|disappointed 😞|worried 😟|confused 😕|weary 😩|tired_face 😫|sleeping 😴|yawning_face 🥱|zipper_mouth_face 🤐|shushing_face 🤫|face_palm,facepalm 🤦
shrug 🤷|nerd_face 🤓|cowboy_hat_face,face_with_cowboy_hat 🤠|smirk 😏|yum 😋|stuck_out_tongue 😛|stuck_out_tongue_winking_eye 😜|zany_face 🤪|kissing_heart 😘|innocent 😇|melting_face 🫠|saluting_face 🫡
skull 💀|ghost 👻|alien 👽|space_invader 👾|clown_face 🤡|poop,hankey 💩|see_no_evil 🙈|hear_no_evil 🙉|speak_no_evil 🙊|smiley 😃|grin 😁|laughing,satisfied 😆
orange_heart 🧡|yellow_heart 💛|green_heart 💚|blue_heart 💙|purple_heart 💜|black_heart 🖤|broken_heart 💔|two_hearts 💕|sparkling_heart 💖|boom,collision 💥|zap ⚡|dizzy 💫
raised_hand,hand ✋|writing_hand ✍️|open_hands 👐|fist 👊|facepunch,punch 👊|call_me_hand 🤙|spock-hand 🖖|brain 🧠|eye 👁️|ear 👂|speech_balloon 💬
thought_balloon 💭|left_speech_bubble 🗨️|mega 📣|loudspeaker 📢|no_bell 🔕|mute 🔇|email,envelope ✉️|mailbox 📫|inbox_tray 📥|outbox_tray 📤|envelope_with_arrow 📩|telephone_receiver 📞|iphone 📱
computer 💻|desktop_computer 🖥️|keyboard ⌨️|floppy_disk 💾|cd 💿|electric_plug 🔌|battery 🔋|satellite_antenna 📡|microscope 🔬|telescope 🔭|test_tube 🧪|petri_dish 🧫
dna 🧬|magnet 🧲|toolbox 🧰|hammer 🔨|nut_and_bolt 🔩|scissors ✂️|triangular_ruler 📐|straight_ruler 📏|abacus 🧮|broom 🧹|wastebasket 🗑️|card_file_box 🗃️
file_folder 📁|open_file_folder 📂|card_index_dividers 🗂️|page_facing_up 📄|page_with_curl 📃|scroll 📜|clipboard 📋|bar_chart 📊|chart_with_upwards_trend 📈|chart_with_downwards_trend 📉|books 📚|book,open_book 📖
notebook 📓|ledger 📒|bookmark 🔖|label 🏷️|newspaper 📰|paperclip 📎|mag_right 🔎|closed_lock_with_key 🔐|unlock 🔓|old_key 🗝️|shield 🛡️|crossed_swords ⚔️
clock1 🕐|clock3 🕒|clock9 🕘|stopwatch ⏱️|timer_clock ⏲️|alarm_clock ⏰|watch ⌚|date 📅|spiral_calendar_pad 🗓️|arrow_right ➡️|arrow_left ⬅️|arrow_up ⬆️
arrow_down ⬇️|arrow_forward ▶️|arrow_backward ◀️|fast_forward ⏩|rewind ⏪|double_vertical_bar,pause_button ⏸️|black_square_for_stop,stop_button ⏹️|twisted_rightwards_arrows 🔀|repeat 🔁|arrows_counterclockwise 🔄|leftwards_arrow_with_hook ↩️|arrow_right_hook ↪️
no_entry ⛔|no_entry_sign 🚫|stop_sign 🛑|rotating_light 🚨|construction 🚧|vertical_traffic_light 🚦|checkered_flag 🏁|triangular_flag_on_post 🚩|white_flag,waving_white_flag 🏳️|information_source ℹ️|ballot_box_with_check ☑️|negative_squared_cross_mark ❎
red_circle,large_red_circle 🔴|large_orange_circle 🟠|large_yellow_circle 🟡|large_green_circle 🟢|large_blue_circle 🔵|large_purple_circle 🟣|white_circle ⚪|black_circle ⚫|large_blue_square 🟦|small_blue_diamond 🔹|small_orange_diamond 🔸|bangbang ‼️
one 1️⃣|two 2️⃣|three 3️⃣|four 4️⃣|five 5️⃣|six 6️⃣|seven 7️⃣|eight 8️⃣|nine 9️⃣|keycap_ten 🔟|zero 0️⃣|recycle ♻️
dog 🐶|cat 🐱|mouse 🐭|rabbit 🐰|bear 🐻|panda_face 🐼|koala 🐨|tiger 🐯|lion_face 🦁|monkey 🐒|penguin 🐧|bird 🐦
eagle 🦅|duck 🦆|wolf 🐺|unicorn_face 🦄|bee,honeybee 🐝|ant 🐜|butterfly 🦋|snail 🐌|turtle 🐢|snake 🐍|octopus 🐙|whale 🐳
dolphin 🐬|fish 🐟|crab 🦀|parrot 🦜|hedgehog 🦔|raccoon 🦝|otter 🦦|sloth 🦥|dragon 🐉|t-rex 🦖|evergreen_tree 🌲|deciduous_tree 🌳
cactus 🌵|four_leaf_clover 🍀|maple_leaf 🍁|mushroom 🍄|sunflower 🌻|rose 🌹|cherry_blossom 🌸|earth_africa 🌍|globe_with_meridians 🌐|full_moon 🌕|sunny ☀️|partly_sunny ⛅
cloud ☁️|umbrella ☔|snowflake ❄️|ocean 🌊|apple 🍎|lemon 🍋|banana 🍌|strawberry 🍓|avocado 🥑|bread 🍞|cheese_wedge 🧀|hamburger 🍔
taco 🌮|cookie 🍪|doughnut 🍩|icecream 🍦|tea 🍵|wine_glass 🍷|champagne 🍾|popcorn 🍿|house 🏠|office 🏢|factory 🏭|mountain ⛰️
car,red_car 🚗|bike 🚲|airplane ✈️|ship 🚢|anchor ⚓|world_map 🗺️|moneybag 💰|credit_card 💳|gift 🎁|balloon 🎈|confetti_ball 🎊|trophy 🏆
medal,sports_medal 🏅|first_place_medal 🥇|dart 🎯|game_die 🎲|jigsaw 🧩|art 🎨|musical_note 🎵|headphones 🎧|camera 📷|movie_camera 🎥|crown 👑|gem 💎
technologist 🧑‍💻|detective,sleuth_or_spy 🕵️|superhero 🦸|mage 🧙|ninja 🥷|construction_worker 👷|scientist 🧑‍🔬|teacher 🧑‍🏫|artist 🧑‍🎨|busts_in_silhouette 👥|bust_in_silhouette 👤|footprints 👣
`;

/** `{name, names, char}`, in the picker's order. */
const EMOJI = TABLE.trim().split(/[|\n]/).map((entry) => {
  const space = entry.lastIndexOf(" ");
  const names = entry.slice(0, space).split(",");
  return { name: names[0], names, char: entry.slice(space + 1) };
});

const COMMON = EMOJI.slice(0, COMMON_COUNT);

/** The quick reactions of a message's toolbar. */
export const QUICK = ["+1", "heart", "joy", "eyes", "white_check_mark", "x"];

const byName = new Map(EMOJI.flatMap((emoji) => emoji.names.map((name) => [name, emoji.char])));

/** The character for a name with or without colons and skin tone, or null. */
export function emojiFor(name) {
  return byName.get(name.replace(/^:|:$/g, "").split("::")[0]) ?? null;
}

/** Names that begin with the query come before names that only contain it. */
export function searchEmoji(query) {
  const wanted = query.trim().toLowerCase().replace(/^:|:$/g, "").replaceAll(" ", "_");
  if (!wanted) return COMMON;
  const rank = ({ names }) => (names.some((name) => name.startsWith(wanted)) ? 0 : names.some((name) => name.includes(wanted)) ? 1 : 2);
  return EMOJI.filter((emoji) => rank(emoji) < 2).sort((a, b) => rank(a) - rank(b));
}
