"""Measure `LanguageConsistencyReward`: order of mixtures, texts in one language, English mathematics, and speed.

    python benchmarks/bench_language.py --output benchmarks/results/language.json

The sentences were written for this file, the same ten in each language. Other English solutions are scored when a JSON
Lines file is given: `--solutions math500.jsonl:solution`.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import random
import re
import shlex
import statistics
import sys
import time
from pathlib import Path

from reward_funcs._prose import prose
from reward_funcs.language import LanguageConsistencyReward

SENTENCES = {
    "en": r"""First we read the question carefully and write down what is given.
The shop sold 120 apples in the morning and twice as many in the afternoon.
So the total number of apples sold during the day is 120 + 240 = 360.
Each apple costs three euros, therefore the income is $360 \times 3 = 1080$ euros.
Let x be the number of children in the class, then the equation $2x + 5 = 41$ must hold.
Solving this equation gives x = 18, which is a positive whole number.
Wait, let me check this result by putting it back into the original equation.
The left side equals the right side, so our answer is correct.
The area of the triangle is half the product of the base and the height.
We can now conclude that the final answer is 18.""",
    "de": r"""Zuerst lesen wir die Frage sorgfältig und schreiben auf, was gegeben ist.
Der Laden hat am Morgen 120 Äpfel verkauft und am Nachmittag doppelt so viele.
Also ist die Gesamtzahl der am Tag verkauften Äpfel 120 + 240 = 360.
Jeder Apfel kostet drei Euro, daher betragen die Einnahmen $360 \times 3 = 1080$ Euro.
Sei x die Anzahl der Kinder in der Klasse, dann muss die Gleichung $2x + 5 = 41$ gelten.
Lösen wir diese Gleichung, so erhalten wir x = 18, eine positive ganze Zahl.
Moment, ich überprüfe dieses Ergebnis, indem ich es in die ursprüngliche Gleichung einsetze.
Die linke Seite ist gleich der rechten Seite, also ist unsere Antwort richtig.
Die Fläche des Dreiecks ist die Hälfte des Produkts aus Grundseite und Höhe.
Daraus können wir nun schließen, dass die endgültige Antwort 18 ist.""",
    "fr": r"""D'abord nous lisons attentivement la question et nous notons ce qui est donné.
Le magasin a vendu 120 pommes le matin et deux fois plus l'après-midi.
Le nombre total de pommes vendues dans la journée est donc 120 + 240 = 360.
Chaque pomme coûte trois euros, la recette est donc de $360 \times 3 = 1080$ euros.
Soit x le nombre d'enfants de la classe, alors l'équation $2x + 5 = 41$ doit être vérifiée.
La résolution de cette équation donne x = 18, qui est un nombre entier positif.
Attendez, je vérifie ce résultat en le remplaçant dans l'équation de départ.
Le côté gauche est égal au côté droit, notre réponse est donc correcte.
L'aire du triangle est la moitié du produit de la base par la hauteur.
Nous pouvons maintenant conclure que la réponse finale est 18.""",
    "es": r"""Primero leemos la pregunta con cuidado y anotamos lo que se nos da.
La tienda vendió 120 manzanas por la mañana y el doble por la tarde.
Entonces el número total de manzanas vendidas durante el día es 120 + 240 = 360.
Cada manzana cuesta tres euros, por lo tanto los ingresos son $360 \times 3 = 1080$ euros.
Sea x el número de niños de la clase, entonces debe cumplirse la ecuación $2x + 5 = 41$.
Al resolver esta ecuación obtenemos x = 18, que es un número entero positivo.
Espera, voy a comprobar este resultado sustituyéndolo en la ecuación original.
El lado izquierdo es igual al lado derecho, así que nuestra respuesta es correcta.
El área del triángulo es la mitad del producto de la base por la altura.
Ahora podemos concluir que la respuesta final es 18.""",
    "it": r"""Per prima cosa leggiamo attentamente la domanda e scriviamo ciò che è dato.
Il negozio ha venduto 120 mele al mattino e il doppio nel pomeriggio.
Quindi il numero totale di mele vendute durante il giorno è 120 + 240 = 360.
Ogni mela costa tre euro, perciò l'incasso è di $360 \times 3 = 1080$ euro.
Sia x il numero di bambini della classe, allora deve valere l'equazione $2x + 5 = 41$.
Risolvendo questa equazione si ottiene x = 18, che è un numero intero positivo.
Aspetta, controllo questo risultato sostituendolo nell'equazione di partenza.
Il lato sinistro è uguale al lato destro, quindi la nostra risposta è corretta.
L'area del triangolo è la metà del prodotto della base per l'altezza.
Ora possiamo concludere che la risposta finale è 18.""",
    "pt": r"""Primeiro lemos a pergunta com atenção e anotamos o que é dado.
A loja vendeu 120 maçãs de manhã e o dobro à tarde.
Portanto, o número total de maçãs vendidas durante o dia é 120 + 240 = 360.
Cada maçã custa três euros, logo a receita é de $360 \times 3 = 1080$ euros.
Seja x o número de crianças da turma, então a equação $2x + 5 = 41$ deve ser satisfeita.
Resolvendo esta equação obtemos x = 18, que é um número inteiro positivo.
Espere, vou verificar este resultado colocando-o de volta na equação original.
O lado esquerdo é igual ao lado direito, então a nossa resposta está correta.
A área do triângulo é metade do produto da base pela altura.
Agora podemos concluir que a resposta final é 18.""",
    "nl": r"""Eerst lezen we de vraag zorgvuldig en schrijven we op wat gegeven is.
De winkel verkocht 's ochtends 120 appels en 's middags twee keer zoveel.
Dus het totale aantal appels dat die dag verkocht werd is 120 + 240 = 360.
Elke appel kost drie euro, daarom is de opbrengst $360 \times 3 = 1080$ euro.
Laat x het aantal kinderen in de klas zijn, dan moet de vergelijking $2x + 5 = 41$ gelden.
Als we deze vergelijking oplossen krijgen we x = 18, een positief geheel getal.
Wacht, ik controleer dit resultaat door het weer in de oorspronkelijke vergelijking in te vullen.
De linkerkant is gelijk aan de rechterkant, dus ons antwoord is juist.
De oppervlakte van de driehoek is de helft van het product van de basis en de hoogte.
We kunnen nu besluiten dat het uiteindelijke antwoord 18 is.""",
    "sv": r"""Först läser vi frågan noggrant och skriver ner vad som är givet.
Affären sålde 120 äpplen på morgonen och dubbelt så många på eftermiddagen.
Alltså är det totala antalet äpplen som såldes under dagen 120 + 240 = 360.
Varje äpple kostar tre euro, därför är inkomsten $360 \times 3 = 1080$ euro.
Låt x vara antalet barn i klassen, då måste ekvationen $2x + 5 = 41$ gälla.
När vi löser den här ekvationen får vi x = 18, som är ett positivt heltal.
Vänta, jag kontrollerar resultatet genom att sätta in det i den ursprungliga ekvationen.
Vänstra sidan är lika med högra sidan, så vårt svar är riktigt.
Triangelns area är hälften av produkten av basen och höjden.
Nu kan vi dra slutsatsen att det slutliga svaret är 18.""",
    "pl": r"""Najpierw uważnie czytamy pytanie i zapisujemy, co jest dane.
Sklep sprzedał rano 120 jabłek, a po południu dwa razy więcej.
Zatem łączna liczba jabłek sprzedanych w ciągu dnia to 120 + 240 = 360.
Każde jabłko kosztuje trzy euro, dlatego przychód wynosi $360 \times 3 = 1080$ euro.
Niech x będzie liczbą dzieci w klasie, wtedy musi zachodzić równanie $2x + 5 = 41$.
Rozwiązując to równanie, otrzymujemy x = 18, co jest dodatnią liczbą całkowitą.
Chwileczkę, sprawdzę ten wynik, wstawiając go z powrotem do pierwotnego równania.
Lewa strona jest równa prawej stronie, więc nasza odpowiedź jest poprawna.
Pole trójkąta jest połową iloczynu podstawy i wysokości.
Możemy teraz stwierdzić, że ostateczna odpowiedź to 18.""",
    "tr": r"""Önce soruyu dikkatlice okuyoruz ve verilenleri yazıyoruz.
Dükkân sabah 120 elma, öğleden sonra ise bunun iki katını sattı.
Öyleyse gün boyunca satılan toplam elma sayısı 120 + 240 = 360 olur.
Her elma üç avro tutuyor, bu yüzden gelir $360 \times 3 = 1080$ avrodur.
Sınıftaki çocuk sayısı x olsun, o zaman $2x + 5 = 41$ denklemi sağlanmalıdır.
Bu denklemi çözersek x = 18 buluruz, bu da pozitif bir tam sayıdır.
Bekle, bu sonucu ilk denklemde yerine koyarak kontrol edeyim.
Sol taraf sağ tarafa eşittir, yani cevabımız doğrudur.
Üçgenin alanı, taban ile yüksekliğin çarpımının yarısıdır.
Artık son cevabın 18 olduğu sonucuna varabiliriz.""",
    "vi": r"""Trước tiên chúng ta đọc kỹ câu hỏi và viết ra những gì đã cho.
Cửa hàng bán được 120 quả táo vào buổi sáng và gấp đôi vào buổi chiều.
Vậy tổng số quả táo bán được trong ngày là 120 + 240 = 360.
Mỗi quả táo giá ba đồng, do đó số tiền thu được là $360 \times 3 = 1080$ đồng.
Gọi x là số trẻ em trong lớp, khi đó phương trình $2x + 5 = 41$ phải đúng.
Giải phương trình này ta được x = 18, là một số nguyên dương.
Khoan đã, để tôi kiểm tra kết quả này bằng cách thay lại vào phương trình ban đầu.
Vế trái bằng vế phải, vì vậy câu trả lời của chúng ta là đúng.
Diện tích của tam giác bằng một nửa tích của cạnh đáy và chiều cao.
Bây giờ chúng ta có thể kết luận rằng đáp án cuối cùng là 18.""",
    "id": r"""Pertama kita membaca soal dengan teliti dan menuliskan apa yang diketahui.
Toko itu menjual 120 apel pada pagi hari dan dua kali lipatnya pada sore hari.
Jadi jumlah seluruh apel yang terjual pada hari itu adalah 120 + 240 = 360.
Setiap apel berharga tiga euro, oleh karena itu pendapatannya adalah $360 \times 3 = 1080$ euro.
Misalkan x adalah banyaknya anak di kelas, maka persamaan $2x + 5 = 41$ harus berlaku.
Dengan menyelesaikan persamaan ini kita memperoleh x = 18, yaitu bilangan bulat positif.
Tunggu, saya akan memeriksa hasil ini dengan memasukkannya kembali ke persamaan semula.
Ruas kiri sama dengan ruas kanan, jadi jawaban kita benar.
Luas segitiga adalah setengah dari hasil kali alas dan tingginya.
Sekarang kita dapat menyimpulkan bahwa jawaban akhirnya adalah 18.""",
    "ru": r"""Сначала мы внимательно читаем вопрос и записываем, что дано.
Магазин продал утром 120 яблок, а днём вдвое больше.
Значит, общее количество яблок, проданных за день, равно 120 + 240 = 360.
Каждое яблоко стоит три евро, поэтому выручка составляет $360 \times 3 = 1080$ евро.
Пусть x обозначает число детей в классе, тогда должно выполняться уравнение $2x + 5 = 41$.
Решая это уравнение, получаем x = 18, а это целое положительное число.
Подождите, я проверю этот результат, подставив его обратно в исходное уравнение.
Левая часть равна правой части, значит, наш ответ верен.
Площадь треугольника равна половине произведения основания на высоту.
Теперь мы можем сделать вывод, что окончательный ответ равен 18.""",
    "uk": r"""Спочатку ми уважно читаємо запитання і записуємо, що дано.
Крамниця продала вранці 120 яблук, а після обіду вдвічі більше.
Отже, загальна кількість яблук, проданих за день, дорівнює 120 + 240 = 360.
Кожне яблуко коштує три євро, тому виручка становить $360 \times 3 = 1080$ євро.
Нехай x позначає кількість дітей у класі, тоді має виконуватися рівняння $2x + 5 = 41$.
Розв'язуючи це рівняння, отримуємо x = 18, а це ціле додатне число.
Зачекайте, я перевірю цей результат, підставивши його назад у початкове рівняння.
Ліва частина дорівнює правій частині, отже, наша відповідь правильна.
Площа трикутника дорівнює половині добутку основи на висоту.
Тепер ми можемо зробити висновок, що остаточна відповідь дорівнює 18.""",
    "el": r"""Πρώτα διαβάζουμε προσεκτικά την ερώτηση και γράφουμε τι μας δίνεται.
Το κατάστημα πούλησε 120 μήλα το πρωί και τα διπλάσια το απόγευμα.
Άρα ο συνολικός αριθμός των μήλων που πουλήθηκαν μέσα στη μέρα είναι 120 + 240 = 360.
Κάθε μήλο κοστίζει τρία ευρώ, επομένως τα έσοδα είναι $360 \times 3 = 1080$ ευρώ.
Έστω x ο αριθμός των παιδιών της τάξης, τότε πρέπει να ισχύει η εξίσωση $2x + 5 = 41$.
Λύνοντας αυτή την εξίσωση βρίσκουμε x = 18, που είναι θετικός ακέραιος αριθμός.
Περίμενε, ας ελέγξω αυτό το αποτέλεσμα βάζοντάς το πίσω στην αρχική εξίσωση.
Το αριστερό μέλος είναι ίσο με το δεξί μέλος, άρα η απάντησή μας είναι σωστή.
Το εμβαδόν του τριγώνου είναι το μισό του γινομένου της βάσης επί το ύψος.
Τώρα μπορούμε να συμπεράνουμε ότι η τελική απάντηση είναι 18.""",
    "ar": r"""أولاً نقرأ السؤال بعناية ونكتب ما هو معطى.
باع المتجر 120 تفاحة في الصباح وضعف ذلك بعد الظهر.
إذن العدد الكلي للتفاح الذي بيع خلال اليوم هو 120 + 240 = 360.
ثمن كل تفاحة ثلاثة يورو، لذلك يكون الدخل $360 \times 3 = 1080$ يورو.
ليكن x عدد الأطفال في الصف، عندئذ يجب أن تتحقق المعادلة $2x + 5 = 41$.
بحل هذه المعادلة نحصل على x = 18، وهو عدد صحيح موجب.
انتظر، دعني أتحقق من هذه النتيجة بتعويضها في المعادلة الأصلية.
الطرف الأيسر يساوي الطرف الأيمن، إذن إجابتنا صحيحة.
مساحة المثلث هي نصف حاصل ضرب القاعدة في الارتفاع.
يمكننا الآن أن نستنتج أن الإجابة النهائية هي 18.""",
    "fa": r"""ابتدا سؤال را با دقت می‌خوانیم و آنچه داده شده است را می‌نویسیم.
فروشگاه صبح 120 سیب و بعد از ظهر دو برابر آن فروخت.
پس تعداد کل سیب‌هایی که در طول روز فروخته شد برابر است با 120 + 240 = 360.
قیمت هر سیب سه یورو است، بنابراین درآمد $360 \times 3 = 1080$ یورو می‌شود.
فرض کنید x تعداد بچه‌های کلاس باشد، آنگاه معادله $2x + 5 = 41$ باید برقرار باشد.
با حل این معادله به x = 18 می‌رسیم که یک عدد صحیح مثبت است.
صبر کنید، بگذارید این نتیجه را با قرار دادن در معادله اصلی بررسی کنم.
طرف چپ با طرف راست برابر است، پس پاسخ ما درست است.
مساحت مثلث نصف حاصل ضرب قاعده در ارتفاع است.
اکنون می‌توانیم نتیجه بگیریم که پاسخ نهایی 18 است.""",
    "he": r"""תחילה אנחנו קוראים את השאלה בעיון ורושמים מה נתון.
החנות מכרה 120 תפוחים בבוקר ופי שניים אחר הצהריים.
לכן המספר הכולל של התפוחים שנמכרו במשך היום הוא 120 + 240 = 360.
כל תפוח עולה שלושה אירו, ולכן ההכנסה היא $360 \times 3 = 1080$ אירו.
יהי x מספר הילדים בכיתה, אז המשוואה $2x + 5 = 41$ חייבת להתקיים.
פתרון המשוואה הזאת נותן x = 18, שהוא מספר שלם וחיובי.
רגע, אבדוק את התוצאה הזאת על ידי הצבה במשוואה המקורית.
האגף השמאלי שווה לאגף הימני, ולכן התשובה שלנו נכונה.
שטח המשולש הוא מחצית המכפלה של הבסיס בגובה.
כעת אנחנו יכולים להסיק שהתשובה הסופית היא 18.""",
    "hi": r"""सबसे पहले हम प्रश्न को ध्यान से पढ़ते हैं और जो दिया गया है उसे लिखते हैं।
दुकान ने सुबह 120 सेब बेचे और दोपहर में उससे दोगुने बेचे।
इसलिए दिन भर में बेचे गए सेबों की कुल संख्या 120 + 240 = 360 है।
हर सेब की कीमत तीन यूरो है, इसलिए आमदनी $360 \times 3 = 1080$ यूरो है।
मान लीजिए कि कक्षा में बच्चों की संख्या x है, तब समीकरण $2x + 5 = 41$ सही होना चाहिए।
इस समीकरण को हल करने पर हमें x = 18 मिलता है, जो एक धनात्मक पूर्णांक है।
रुकिए, मैं इस परिणाम को मूल समीकरण में रखकर जाँच लेता हूँ।
बायाँ पक्ष दाएँ पक्ष के बराबर है, इसलिए हमारा उत्तर सही है।
त्रिभुज का क्षेत्रफल आधार और ऊँचाई के गुणनफल का आधा होता है।
अब हम यह निष्कर्ष निकाल सकते हैं कि अंतिम उत्तर 18 है।""",
    "th": r"""ก่อนอื่นเราอ่านโจทย์อย่างละเอียดและเขียนสิ่งที่โจทย์กำหนดให้
ร้านขายแอปเปิลได้ 120 ผลในตอนเช้าและขายได้สองเท่าในตอนบ่าย
ดังนั้นจำนวนแอปเปิลทั้งหมดที่ขายได้ในวันนั้นคือ 120 + 240 = 360
แอปเปิลแต่ละผลราคาสามยูโร เพราะฉะนั้นรายได้คือ $360 \times 3 = 1080$ ยูโร
ให้ x เป็นจำนวนเด็กในห้องเรียน แล้วสมการ $2x + 5 = 41$ ต้องเป็นจริง
เมื่อแก้สมการนี้จะได้ x = 18 ซึ่งเป็นจำนวนเต็มบวก
เดี๋ยวก่อน ขอตรวจสอบผลลัพธ์นี้โดยแทนค่ากลับลงในสมการเดิม
ด้านซ้ายเท่ากับด้านขวา ดังนั้นคำตอบของเราถูกต้อง
พื้นที่ของรูปสามเหลี่ยมเท่ากับครึ่งหนึ่งของผลคูณของฐานกับความสูง
ตอนนี้เราสรุปได้ว่าคำตอบสุดท้ายคือ 18""",
    "ko": r"""먼저 문제를 주의 깊게 읽고 주어진 것을 적습니다.
그 가게는 아침에 사과 120개를 팔았고 오후에는 두 배를 팔았습니다.
따라서 하루 동안 판 사과의 총 개수는 120 + 240 = 360개입니다.
사과 한 개의 값은 삼 유로이므로 수입은 $360 \times 3 = 1080$ 유로입니다.
반에 있는 아이들의 수를 x라고 하면 방정식 $2x + 5 = 41$ 이 성립해야 합니다.
이 방정식을 풀면 x = 18을 얻는데, 이는 양의 정수입니다.
잠깐, 이 결과를 원래 방정식에 다시 대입해서 확인해 보겠습니다.
왼쪽 변이 오른쪽 변과 같으므로 우리의 답은 맞습니다.
삼각형의 넓이는 밑변과 높이를 곱한 값의 절반입니다.
이제 최종 답이 18이라는 결론을 내릴 수 있습니다.""",
    "zh": r"""首先我们仔细阅读题目，并写下已知的条件。
商店上午卖出了120个苹果，下午卖出的数量是上午的两倍。
所以这一天卖出的苹果总数是120 + 240 = 360个。
每个苹果的价格是三欧元，因此收入是$360 \times 3 = 1080$欧元。
设班里孩子的人数为x，那么方程$2x + 5 = 41$必须成立。
解这个方程得到x = 18，这是一个正整数。
等一下，让我把这个结果代回原来的方程检验一下。
左边等于右边，所以我们的答案是正确的。
三角形的面积等于底边与高的乘积的一半。
现在我们可以得出结论，最终的答案是18。""",
    "ja": r"""まず問題を注意深く読み、与えられている条件を書き出します。
その店は午前中に120個のりんごを売り、午後にはその二倍を売りました。
したがって一日に売れたりんごの合計は120 + 240 = 360個です。
りんごは一個三ユーロなので、収入は$360 \times 3 = 1080$ユーロになります。
クラスの子どもの人数をxとすると、方程式$2x + 5 = 41$が成り立たなければなりません。
この方程式を解くとx = 18が得られ、これは正の整数です。
ちょっと待ってください、この結果を元の方程式に代入して確かめてみます。
左辺は右辺と等しいので、私たちの答えは正しいです。
三角形の面積は底辺と高さの積の半分です。
これで最終的な答えは18であると結論できます。""",
}
PAIRS = (
    "en/zh",
    "zh/ja",
    "ru/en",
    "ar/en",
    "ja/en",
    "ko/en",
    "th/en",
    "hi/en",
    "en/de",
    "fr/es",
    "it/pt",
    "ru/uk",
    "ar/fa",
)
STEPS = 20  # sentences a mixture, and mixtures from 0 to 100 %


def ranks(values: list[float]) -> list[float]:
    """Rank of each value, ties at their mean."""
    ordered = sorted(values)
    return [statistics.mean((ordered.index(value), len(ordered) - 1 - ordered[::-1].index(value))) for value in values]


def mixtures(target: str, other: str, seed: int, *, nested: bool) -> list[tuple[float, str]]:
    """Texts with 0 to 20 of 20 sentences in the target language, and the share by the words of the English originals.

    Nested mixtures turn one sentence after the other; the others draw each text anew.
    """
    generator = random.Random(seed)
    words = [len(re.findall("[A-Za-z]{2,}", prose(sentence))) for sentence in SENTENCES["en"].splitlines()]
    ours, theirs = SENTENCES[target].splitlines(), SENTENCES[other].splitlines()
    indices = [i % len(ours) for i in range(STEPS)]
    turned = generator.sample(range(STEPS), STEPS)
    texts = []
    for number in range(STEPS + 1):
        if not nested:
            turned = generator.sample(range(STEPS), STEPS)
            generator.shuffle(indices)
        own = set(turned[:number])
        lines = [(ours if place in own else theirs)[i] for place, i in enumerate(indices)]
        share = sum(words[i] for place, i in enumerate(indices) if place in own) / sum(words[i] for i in indices)
        texts.append((share, "\n".join(lines)))
    return texts


def mixture_figures(pair: str, seeds: int) -> dict[str, object]:
    """Rank correlation of score and true share, inversions over steps of 20 %, and the largest error."""
    target, other = pair.split("/")
    reward = LanguageConsistencyReward(target)
    correlations, inversions, errors = [], 0, []
    for seed, nested in itertools.product(range(seeds), (True, False)):
        shares, texts = zip(*mixtures(target, other, seed, nested=nested), strict=True)
        scores = reward(texts)
        errors += [abs(score - share) for score, share in zip(scores, shares, strict=True)]
        if nested:
            correlations.append(statistics.correlation(ranks(list(shares)), ranks(scores)))
        by_share = sorted(zip(shares, scores, strict=True))
        inversions += sum(b[0] - a[0] >= 0.2 and b[1] <= a[1] for a, b in itertools.combinations(by_share, 2))
    return {"pair": pair, "spearman_min": min(correlations), "inversions": inversions, "max_error": max(errors)}


def sample(language: str, length: int, generator: random.Random) -> str:
    """A text of so many different sentences, or of the ten several times over."""
    lines = SENTENCES[language].splitlines()
    return "\n".join(
        itertools.chain.from_iterable(generator.sample(lines, min(length - i, 10)) for i in range(0, length, 10))
    )


def single_figures(language: str, count: int) -> dict[str, object]:
    """Scores of texts of six sentences in one language."""
    generator = random.Random(0)
    scores = LanguageConsistencyReward(language)([sample(language, 6, generator) for _ in range(count)])
    return {
        "language": language,
        "mean": statistics.mean(scores),
        "at_least_0.95": sum(s >= 0.95 for s in scores) / count,
    }


def solution_figures(argument: str) -> dict[str, object]:
    """Scores of the English solutions in a field of a JSON Lines file."""
    path, field = argument.rsplit(":", 1)
    with open(path, encoding="utf-8") as lines:
        texts = [json.loads(line)[field] for line in lines]
    judged = [score for score in LanguageConsistencyReward("en")(texts) if score is not None]
    name = Path(path).stem
    return {
        "file": name,
        "texts": len(texts),
        "judged": len(judged),
        "mean": statistics.mean(judged),
        "min": min(judged),
    }


def speed_figures(language: str, candidates: tuple[str, ...] | None, repeats: int) -> dict[str, object]:
    """Completions per second of one core's time, the median of the repeats, on texts of over 1,000 characters."""
    generator = random.Random(0)
    sentences = {"zh": 40, "ja": 30, "ko": 30}.get(language, 20)
    texts = [sample(language, sentences, generator) for _ in range(200)]
    reward = LanguageConsistencyReward(language, candidates=candidates)
    reward(texts[:10])
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        reward(texts)
        seconds.append(time.process_time() - start)
    mean_length = statistics.mean(map(len, texts))
    mode = "default" if candidates is None else "scripts"
    figures = {"language": language, "mode": mode, "mean_characters": mean_length}
    return figures | {"completions_per_s": len(texts) / statistics.median(seconds)}


def table(title: str, rows: list[dict[str, object]]) -> None:
    """Print figures, a line a row."""
    print(f"\n{title}")
    for row in rows:
        print(
            "  "
            + "  ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
        )


def main() -> None:
    """Print the figures, and write them when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--texts", type=int, default=200, help="texts in one language, for each language")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--solutions", nargs="*", default=[], metavar="FILE:FIELD", help="English solutions, JSON Lines"
    )
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    figures = {
        "mixtures": [mixture_figures(pair, args.seeds) for pair in PAIRS],
        "single_language": [single_figures(language, args.texts) for language in SENTENCES],
        "english_solutions": [solution_figures(argument) for argument in args.solutions],
        "speed": [
            speed_figures(language, candidates, args.repeats)
            for candidates in ((), None)
            for language in ("en", "de", "zh", "ja", "ko", "ru", "ar", "hi", "th")
        ],
    }
    for title, rows in figures.items():
        table(title, rows)
    if args.output:
        # where the files of solutions lie says nothing about the figures
        command = shlex.join(["python", *(Path(word).name if word in args.solutions else word for word in sys.argv)])
        versions = {"python": platform.python_version(), "py3langid": importlib.metadata.version("py3langid")}
        machine = {"device": platform.machine(), "cpu_count": os.cpu_count()}
        settings = {name: getattr(args, name) for name in ("seeds", "texts", "repeats")}
        record = {
            "command": command,
            "settings": settings,
            "versions": versions,
            "machine": machine,
            "figures": figures,
        }
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
